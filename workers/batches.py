"""Batches on their way: one thread checks the lines of new ones and puts them into the line, another sees those
that run to their end. One process leads; a second takes over when the first is gone. It may be killed at any
moment: each step is one transaction, and what was not finished is done again.
"""

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog
from sqlalchemy.exc import SQLAlchemyError

from app import (
    clock,
    tables,  # noqa: F401 - a foreign key resolves only where its table is known
)
from app.batches import cancelling, counting, finalizing, lifecycle
from app.batches.counting import Counts
from app.batches.intake import Intake
from app.batches.progress import Pace, pause_seconds, told
from app.batches.queries import running_batches
from app.batches.states import BatchStatus
from app.batches.tables import Batch
from app.db import transaction
from app.redis import RedisError
from app.streams.announce import announce
from config.logging import configure_logging
from config.settings import settings
from workers.leadership import BATCHES_LOCK, Leadership

log = structlog.get_logger(__name__)

CANCELLED_AT_ONCE: Final = 1_000
# Counting reads every line: at most this share of the time.
COUNTING_SHARE: Final = 0.05
AGAIN_SECONDS: Final = 10.0  # after something went wrong with a batch
RECOVER_SECONDS: Final = 1.0  # after a round that failed
STOP_SECONDS: Final = 3.0  # what a thread is at is done again elsewhere


@dataclass
class Watched:
    """What this process remembers of a batch that runs; all of it may be lost."""

    first_active_line: int = 0
    pace: Pace = field(default_factory=Pace)
    told: Counts | None = None
    count_at: float = 0.0


class Running:
    """Sees batches to their end."""

    def __init__(self) -> None:
        self._watched: dict[str, Watched] = {}
        self._not_before: dict[str, float] = {}

    def round(self) -> bool:
        """Look after each once. Whether to go on at once: never, lines take their time."""
        with transaction() as session:
            batches = running_batches(session)
        ids = {batch.id for batch in batches}
        self._watched = {batch_id: self._watched.get(batch_id, Watched()) for batch_id in ids}
        for batch in batches:
            if clock.monotonic() >= self._not_before.get(batch.id, 0.0):
                self._look_after(batch)
        return False

    def _look_after(self, batch: Batch) -> None:
        """What goes wrong with one holds up no other."""
        try:
            self._see_on(batch)
            self._not_before.pop(batch.id, None)
        except (SQLAlchemyError, RedisError):
            raise
        except Exception:
            log.exception("batch.stuck", batch_id=batch.id, status=batch.status)
            self._not_before[batch.id] = clock.monotonic() + AGAIN_SECONDS

    def _see_on(self, batch: Batch) -> None:
        if batch.status is BatchStatus.CANCELLING:
            _cancel_lines(batch.id)
        if batch.status is BatchStatus.FINALIZING or not self._is_active(batch.id):
            _finalize(batch)
        elif clock.monotonic() >= self._watched[batch.id].count_at:
            self._note_progress(batch)

    def _is_active(self, batch_id: str) -> bool:
        watched = self._watched[batch_id]
        with transaction() as session:
            line = counting.first_active_line(session, batch_id, watched.first_active_line)
        if line is not None:
            watched.first_active_line = line
        return line is not None

    def _note_progress(self, batch: Batch) -> None:
        watched, began = self._watched[batch.id], clock.monotonic()
        with transaction() as session:
            counts = counting.count(session, [batch])[batch.id]
            watched.pace.note(began, counts)
            if counts != watched.told:
                lifecycle.note_progress(session, batch.id, told(counts, watched.pace, clock.now()))
        watched.told = counts
        age = (clock.now() - (batch.in_progress_at or batch.created_at)).total_seconds()
        watched.count_at = began + max(pause_seconds(age), (clock.monotonic() - began) / COUNTING_SHARE)


def _cancel_lines(batch_id: str) -> None:
    with transaction() as session:
        cancelling.tell_workers(session, batch_id)
    events = None
    while events is None or len(events) == CANCELLED_AT_ONCE:
        with transaction() as session:
            events = cancelling.end_waiting(session, batch_id, CANCELLED_AT_ONCE)
        announce(events)


def _finalize(batch: Batch) -> None:
    if batch.status is BatchStatus.IN_PROGRESS:
        with transaction() as session:
            begun = finalizing.begin(session, batch.id)
        if begun is None:
            return
        batch = begun
    began = clock.monotonic()
    ended = finalizing.finalize(batch)
    if ended is not None:
        seconds = round(clock.monotonic() - began, 3)
        log.info("batch.ended", batch_id=batch.id, status=ended.status, total=ended.total, seconds=seconds)


class Batches:
    """Both threads, at work while this process leads."""

    def __init__(self) -> None:
        self._leadership = Leadership(BATCHES_LOCK)
        self._leads = threading.Event()
        self._stopping = threading.Event()
        self._intake = Intake(self._stopping.is_set)
        self._threads = [
            threading.Thread(target=self._work, args=(round_,), name=name, daemon=True)
            for name, round_ in (("intake", self._intake.round), ("running", Running().round))
        ]

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        for thread in self._threads:
            thread.start()
        while not self._stopping.is_set():
            self._lead()
            self._stopping.wait(settings().leader_retry_seconds)
        for thread in self._threads:
            thread.join(STOP_SECONDS)
        self._leadership.drop()

    def _lead(self) -> None:
        try:
            leads = self._leadership.is_mine()
        except SQLAlchemyError as error:
            log.warning("batches.no_database", error=str(error))
            leads = False
        if leads != self._leads.is_set():
            log.info("batches.leads" if leads else "batches.follows")
        (self._leads.set if leads else self._leads.clear)()

    def _work(self, round_: Callable[[], bool]) -> None:
        while not self._stopping.is_set():
            if not self._leads.wait(settings().leader_retry_seconds):
                continue
            seconds = _attempt(round_)
            if seconds:
                self._stopping.wait(seconds)


def _attempt(round_: Callable[[], bool]) -> float:
    """One round of a thread. How many seconds to wait before the next."""
    name = threading.current_thread().name
    try:
        return 0.0 if round_() else settings().batch_interval_seconds
    except SQLAlchemyError as error:
        log.warning("batches.no_database", thread=name, error=str(error))
    except (RedisError, OSError) as error:
        log.warning("batches.no_service", thread=name, error=str(error))
    except Exception:
        # What nobody thought of in one batch: the next round begins with another account's.
        log.exception("batches.failed", thread=name)
    return RECOVER_SECONDS


def main() -> None:
    configure_logging()
    batches = Batches()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: batches.stop())
    log.info("batches.started")
    batches.run()


if __name__ == "__main__":
    main()
