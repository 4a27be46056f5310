"""What workers leave undone, once a second: end what waited too long, rescue the jobs of lost workers, and drop
what is past its retention. Several janitors may run: each row is handled once.
"""

import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import structlog
from sqlalchemy.exc import SQLAlchemyError

from app import (
    clock,
    dispatch,
    tables,  # noqa: F401 - a foreign key resolves only where its table is known
)
from app.db import transaction
from app.files import shelf, spool
from app.jobs import log as joblog
from app.jobs import rescue
from app.jobs.states import Status
from app.redis import RedisError, client
from app.streams import tail
from app.streams.announce import announce
from config.logging import configure_logging
from config.settings import settings

log = structlog.get_logger(__name__)

LOST_AT_ONCE: Final = 100
ENDED_AT_ONCE: Final = 1_000
UNSTORED_LOOK_SECONDS: Final = 10.0
PRUNE_SECONDS: Final = 60.0


def end_what_waited_too_long() -> None:
    for verb in (rescue.expire, rescue.stop_overdue):
        events = None
        # The end of a batch's window ends thousands of lines.
        while events is None or len(events) == ENDED_AT_ONCE:
            with transaction() as session:
                events = verb(session, ENDED_AT_ONCE)
            announce(events)


def rescue_lost_jobs() -> None:
    with transaction() as session:
        lost = rescue.find_lost(session, LOST_AT_ONCE)
    for job_id, lease_id, attempt in lost:
        _rescue(job_id, lease_id, attempt)


def _rescue(job_id: str, lease_id: str, attempt: int) -> None:
    shown = _salvage(job_id, lease_id, attempt)
    with transaction() as session:
        move = rescue.rescue(session, job_id, lease_id, shown, settings().max_attempts)
    if move is None:
        return
    log.warning("job.rescued", job_id=job_id, attempt=attempt, status=move.job.status)
    announce([move.event])
    if move.job.status is Status.QUEUED:
        dispatch.wake()


def _salvage(job_id: str, lease_id: str, attempt: int) -> list[joblog.Segment]:
    """What the lost worker had shown and not stored, if Redis still has it."""
    with transaction() as session:
        after = joblog.last_seq(session, job_id)
    try:
        return tail.salvage(client(), job_id, lease_id, attempt, after)
    except (RedisError, OSError) as error:
        log.warning("tail.unreadable", job_id=job_id, error=str(error))
        return []


def prune() -> None:
    """Drop what is past its retention, and workers that were not heard of for a day."""
    with transaction() as session:
        rescue.delete_finished(session, timedelta(days=settings().retention_days), limit=1000)
        gone = rescue.forget_workers(session, timedelta(days=1))
    for worker_id in gone:
        dispatch.forget_worker(worker_id)


def drop_unstored() -> None:
    """Drop what its client did not want stored, once it could be fetched."""
    with transaction() as session:
        rescue.delete_unstored(session, timedelta(seconds=settings().unstored_seconds), limit=1000)


def drop_files() -> None:
    """Drop files that have expired, contents that no file has, and what was never wholly written."""
    spool.drop_leftovers()
    with transaction() as session:
        shelf.drop_expired(session, limit=1000)
    with transaction() as session:
        shelf.drop_orphans(session, limit=100)


DUTIES: Final[list[tuple[Callable[[], None], float]]] = [
    (end_what_waited_too_long, 0.0),
    (rescue_lost_jobs, 0.0),
    (drop_unstored, UNSTORED_LOOK_SECONDS),
    (prune, PRUNE_SECONDS),
    (drop_files, PRUNE_SECONDS),
]


class Janitor:
    """Runs each duty at its interval; after Postgres was away, first gives workers time to renew."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._done_at: dict[Callable[[], None], float] = {}
        self._rescue_from = 0.0

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.is_set():
            self.round()
            self._stopping.wait(settings().janitor_interval_seconds)

    def round(self) -> None:
        for duty, interval in DUTIES:
            if clock.monotonic() - self._done_at.get(duty, -interval) < interval:
                continue
            if duty is rescue_lost_jobs and clock.monotonic() < self._rescue_from:
                continue
            self._do(duty)

    def _do(self, duty: Callable[[], None]) -> None:
        try:
            duty()
            self._done_at[duty] = clock.monotonic()
        except SQLAlchemyError as error:
            log.warning("janitor.no_database", duty=duty.__name__, error=str(error))
            self._rescue_from = clock.monotonic() + settings().lease_seconds
        except (RedisError, OSError) as error:
            log.warning("janitor.no_service", duty=duty.__name__, error=str(error))


def main() -> None:
    configure_logging()
    janitor = Janitor()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: janitor.stop())
    log.info("janitor.started")
    janitor.run()


if __name__ == "__main__":
    main()
