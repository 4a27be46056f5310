"""A worker process: what it serves, which jobs it holds, and the four things that happen to it: it boots, its
heart beats, it drains on SIGTERM, and it dies with its engine. In each case its jobs are handed back with all
their output.
"""

import os
import socket
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import structlog

from app import clock
from app.redis import client
from config.catalogue import catalogue
from config.queues import Tier
from config.settings import settings
from workers.engine import Engine, EngineDead
from workers.engine.loading import load_engine
from workers.heartbeat import Heartbeat
from workers.loop import EngineLoop
from workers.recorder import Recorder
from workers.running import Cause, RunningJob
from workers.slots import Slots

log = structlog.get_logger(__name__)

HAND_BACK_SECONDS: Final = 15.0  # how long a dying process tries to hand its jobs back


def worker_id() -> str:
    """Of a worker process that is about to start; no two are the same."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


class WorkerProcess:
    def __init__(self, id_: str | None = None) -> None:
        spec = catalogue()[settings().model]
        self.id = id_ or worker_id()
        self.model = spec.name
        self.slots = Slots(settings().slots or spec.slots)
        self.engine: Engine = load_engine(spec, self.slots.count)
        self.loop = EngineLoop()
        self.recorder = Recorder(client())
        self.jobs: dict[str, RunningJob] = {}  # by lease id
        self.is_draining = False
        self._dying = threading.Lock()
        self._heartbeat = Heartbeat(self.id, self.jobs, self._describe, self.check_engine)

    def boot(self) -> None:
        """Load the engine, then begin to beat. Raises `EngineStartFailed`."""
        # Threads that only pass messages on must not wait 5 ms for each look at the interpreter.
        sys.setswitchinterval(0.0005)
        began = clock.monotonic()
        log.info("engine.starting", model=self.model, slots=self.slots.count)
        self.loop.run(self.engine.start())
        log.info("engine.ready", model=self.model, seconds=round(clock.monotonic() - began, 1))
        self.recorder.start()
        self._heartbeat.start()

    @contextmanager
    def holding(self, job: RunningJob) -> Iterator[None]:
        """Keep a claimed job's lease alive and its output recorded."""
        self.jobs[job.lease_id] = job
        try:
            with self.recorder.recording(job):
                if self.is_draining:
                    job.stop(Cause.STOPPING)
                yield
        finally:
            del self.jobs[job.lease_id]

    def _describe(self) -> dict[str, Any]:
        """What the table of workers says of this one."""
        jobs = list(self.jobs.values())
        return {
            "model": self.model,
            "slots": self.slots.count,
            "running_interactive": sum(job.job.tier is Tier.INTERACTIVE for job in jobs),
            "running_batch": sum(job.job.tier is Tier.BATCH for job in jobs),
            "tokens_in_flight": sum(job.input_tokens + job.tokens for job in jobs),
            "kv_use": self.engine.kv_use(),
            "draining": self.is_draining,
        }

    def check_engine(self) -> None:
        """Die with the engine: it is gone, or it is busy and has said nothing for too long."""
        try:
            self.engine.check()
        except EngineDead as error:
            self.die(str(error))
        busy = [job for job in list(self.jobs.values()) if job.is_generating]
        heard_at = max((job.heard_at for job in busy), default=None)
        if heard_at is not None and clock.monotonic() - heard_at > settings().engine_stall_seconds:
            self.die(f"No token for {settings().engine_stall_seconds:.0f} s with {len(busy)} jobs running.")

    def begin_draining(self) -> None:
        """Stop claiming; checkpoint batch jobs at once and interactive ones at the end of their grace. The
        process ends when its task threads have nothing left.
        """
        if self.is_draining:
            return
        self.is_draining = True
        log.info("worker.draining", jobs=len(self.jobs), grace_seconds=settings().drain_seconds)
        self._stop_all(Cause.STOPPING, only=Tier.BATCH)
        last_call = threading.Timer(settings().drain_seconds, self._stop_all, (Cause.STOPPING,))
        last_call.daemon = True
        last_call.start()

    def _stop_all(self, cause: Cause, only: Tier | None = None) -> None:
        for job in list(self.jobs.values()):
            if only is None or job.job.tier == only:
                job.stop(cause)

    def die(self, reason: str) -> None:
        """The engine is dead: hand everything back and end the process, which its supervisor starts anew."""
        if self._dying.acquire(blocking=False):
            self.is_draining = True
            log.error("engine.dead", reason=reason, jobs=len(self.jobs))
            threading.Thread(target=self._die, name="dying").start()

    def _die(self) -> None:
        self._stop_all(Cause.ENGINE_DEAD)
        give_up_at = clock.monotonic() + HAND_BACK_SECONDS
        while self.jobs and clock.monotonic() < give_up_at:
            clock.sleep(0.05)
        self._heartbeat.say_goodbye()
        # Celery's threads and the engine's process may hang: neither is worth waiting for.
        os._exit(1)

    def shut_down(self) -> None:
        """After the last task: the end of a drained process."""
        self._heartbeat.stop()
        self.recorder.stop()
        self._heartbeat.say_goodbye()
        self.loop.run(self.engine.stop())
