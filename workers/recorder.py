"""Output on its way out: every piece to Redis at once, all jobs' pieces to Postgres in one statement about
every half second. Two threads, neither of which is the engine's; Redis or Postgres being away delays what
goes there and loses nothing.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import structlog
from redis import Redis
from sqlalchemy.exc import DataError, SQLAlchemyError

from app import clock
from app.db import transaction
from app.jobs import lifecycle
from app.jobs.lifecycle import Prefill
from app.jobs.log import Segment, store_segments
from app.redis import RedisError
from app.streams import frames, tail
from config.settings import settings
from workers.running import Cause, Piece, RunningJob

log = structlog.get_logger(__name__)

REDIS_PAUSE_SECONDS = 1.0  # after a failure, while Redis is likely still away


class Recorder:
    """Records the output of the jobs that are `recording`."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._jobs: dict[str, RunningJob] = {}  # by lease id
        self._dirty: set[RunningJob] = set()
        self._wake = threading.Event()  # something to publish
        self._hurry = threading.Event()  # a first token
        self._stopping = threading.Event()
        self._redis_again_at = 0.0
        self._threads = [
            threading.Thread(target=self._publish_forever, name="live", daemon=True),
            threading.Thread(target=self._store_forever, name="segments", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._wake.set()
        for thread in self._threads:
            thread.join()

    @contextmanager
    def recording(self, job: RunningJob) -> Iterator[None]:
        self._jobs[job.lease_id] = job
        try:
            yield
        finally:
            del self._jobs[job.lease_id]
            self._dirty.discard(job)

    def notice(self, job: RunningJob, *, is_first: bool) -> None:
        """New output, told from the engine loop."""
        self._dirty.add(job)
        if is_first:
            self._hurry.set()
        if not self._wake.is_set():
            self._wake.set()

    def _publish_forever(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait()
            self._wake.clear()
            self._hurry.clear()
            began = clock.monotonic()
            self._publish()
            # A busy worker publishes in fewer, larger rounds: at most a third of the time.
            self._hurry.wait(max(settings().live_interval_seconds, 2 * (clock.monotonic() - began)))

    def _publish(self) -> None:
        dirty, self._dirty = self._dirty, set()
        pieces = [(job, piece) for job in dirty if (piece := job.cut()) is not None]
        if not pieces or clock.monotonic() < self._redis_again_at:
            return
        try:
            tail.publish(self._redis, [_entry(job, piece) for job, piece in pieces])
        except (RedisError, OSError) as error:
            self._redis_again_at = clock.monotonic() + REDIS_PAUSE_SECONDS
            log.warning("live.unpublished", error=str(error))

    def _store_forever(self) -> None:
        while not self._stopping.wait(settings().segment_interval_seconds):
            try:
                self._store()
            except SQLAlchemyError as error:
                log.warning("segments.unstored", error=str(error))

    def _store(self) -> None:
        with ExitStack() as locks:
            jobs = {j.id: j for j in list(self._jobs.values()) if _take(locks, j)}
            self._note_prefill(jobs.values())
            segments = [s for job in jobs.values() if (s := job.unstored()) is not None]
            if not segments:
                return
            try:
                held = self._insert(segments)
            except DataError:
                held = self._insert_one_by_one(segments, jobs)
            for segment in segments:
                if segment.job_id in held:
                    jobs[segment.job_id].mark_stored(segment.seq)
                else:
                    jobs[segment.job_id].stop(Cause.LEASE_LOST)
        self._trim([tail.Stored(s.job_id, s.seq) for s in segments if s.job_id in held])

    def _note_prefill(self, jobs: Iterable[RunningJob]) -> None:
        """In a transaction of its own: its row locks are stronger than those of storing, and waiting for the
        one while holding the other could deadlock with the heartbeat. In id order, as the heartbeat and who
        cancels many jobs at once lock them.
        """
        fresh = sorted(
            (job for job in jobs if job.first_token_at is not None and not job.is_prefill_noted),
            key=lambda job: job.id,
        )
        if not fresh:
            return
        with transaction() as session:
            lifecycle.note_prefill(session, {job.lease_id: prefill_of(job) for job in fresh})
        for job in fresh:
            job.is_prefill_noted = True

    def _insert(self, segments: list[Segment]) -> set[str]:
        with transaction() as session:
            return store_segments(session, segments)

    def _insert_one_by_one(self, segments: list[Segment], jobs: dict[str, RunningJob]) -> set[str]:
        """Postgres refused somebody's output: find whose, so that nobody else loses any."""
        held: set[str] = set()
        for segment in segments:
            try:
                held |= self._insert([segment])
            except DataError as error:
                log.warning("segment.refused", job_id=segment.job_id, error=str(error.orig))
                jobs[segment.job_id].stop(Cause.UNSTORABLE)
        return held

    def _trim(self, stored: list[tail.Stored]) -> None:
        try:
            tail.trim(self._redis, stored)
        except (RedisError, OSError) as error:
            log.warning("tail.untrimmed", error=str(error))


def prefill_of(job: RunningJob) -> Prefill:
    age = None if job.first_token_at is None else clock.monotonic() - job.first_token_at
    return Prefill(job.input_tokens, job.cached_tokens, age)


def _take(locks: ExitStack, job: RunningJob) -> bool:
    """A job that is being settled right now stores its own output."""
    if not job.store_lock.acquire(blocking=False):
        return False
    locks.callback(job.store_lock.release)
    return True


def _entry(job: RunningJob, piece: Piece) -> tail.TailEntry:
    frame = frames.delta(piece.seq, piece.seq, piece.offset, piece.text, piece.logprobs, piece.parts)
    return tail.TailEntry(job.id, frame, piece.token_ids, piece.is_first)
