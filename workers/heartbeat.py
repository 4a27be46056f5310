"""A worker's heart: one beat keeps all its leases, tells that it serves, and learns which leases are lost and
which jobs are to be cancelled. Cancels also come at once, over Redis; the beat finds those that got lost.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from sqlalchemy import delete, func
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.exc import SQLAlchemyError

from app import clock
from app.db import transaction
from app.jobs import lifecycle
from app.jobs.tables import Worker
from app.redis import RedisError, client
from app.streams.tail import CANCEL_CHANNEL
from config.settings import settings
from workers.running import Cause, RunningJob

log = structlog.get_logger(__name__)

RECONNECT_SECONDS = 1.0


class Heartbeat:
    """Two threads: one beats, one listens for cancels. Neither is the engine's or a task's.

    `jobs` are those in hand, by lease id; `describe` gives the columns of this worker's row; `check_engine` is
    called at each beat.
    """

    def __init__(
        self,
        worker_id: str,
        jobs: Mapping[str, RunningJob],
        describe: Callable[[], dict[str, Any]],
        check_engine: Callable[[], None],
    ) -> None:
        self._worker_id = worker_id
        self._jobs = jobs
        self._describe = describe
        self._check_engine = check_engine
        self._stopping = threading.Event()

    def start(self) -> None:
        for run in (self._beat_forever, self._listen_forever):
            threading.Thread(target=run, name=run.__name__, daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()

    def say_goodbye(self) -> None:
        """Vanish from the list of workers, if that works at once."""
        try:
            with transaction() as session:
                session.execute(delete(Worker).where(Worker.id == self._worker_id))
        except SQLAlchemyError as error:
            log.warning("goodbye.failed", error=str(error))

    def _beat_forever(self) -> None:
        while True:
            try:
                self._beat()
            except SQLAlchemyError as error:
                log.warning("heartbeat.failed", error=str(error))
            self._check_engine()
            if self._stopping.wait(settings().heartbeat_seconds):
                return

    def _beat(self) -> None:
        jobs = dict(self._jobs)
        with transaction() as session:
            held = lifecycle.renew(session, list(jobs), settings().lease_seconds)
        with transaction() as session:
            session.execute(self._register())
        for lease_id, job in jobs.items():
            if lease_id not in held:
                # Settled between the copy and the renewal, or truly lost: then nothing it writes would count.
                job.stop(Cause.LEASE_LOST)
            elif held[lease_id]:
                job.stop(Cause.CANCELLED)

    def _register(self) -> Insert:
        row = {**self._describe(), "seen_at": func.clock_timestamp()}
        known = insert(Worker).values(id=self._worker_id, **row)
        return known.on_conflict_do_update(index_elements=["id"], set_=row)

    def _listen_forever(self) -> None:
        while not self._stopping.is_set():
            try:
                self._listen()
            except (RedisError, OSError) as error:
                log.warning("cancels.redis_lost", error=str(error))
                clock.sleep(RECONNECT_SECONDS)

    def _listen(self) -> None:
        with client().pubsub(ignore_subscribe_messages=True) as subscriber:  # type: ignore[no-untyped-call]
            subscriber.subscribe(CANCEL_CHANNEL)
            while not self._stopping.is_set():
                message = subscriber.get_message(timeout=1.0)
                if message:
                    self._cancel(message["data"].decode())

    def _cancel(self, job_id: str) -> None:
        for job in list(self._jobs.values()):
            if job.id == job_id:
                job.stop(Cause.CANCELLED)
