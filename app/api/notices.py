"""Notices on the streams of waiting jobs: where the job stands now, as `queue.moved` frames. They are not of
the log: they have no sequence number, nobody can ask for them again, and losing one costs nothing. Whatever
goes wrong here, the stream goes on.

Looking up a place costs Postgres something. So the followers of one job share what was looked up, a process
looks up one at a time and so many in a second, and the more waiting jobs it follows, the less often it looks
for each.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

import orjson
import structlog

from app import clock
from app.api import views
from app.db import transaction
from app.jobs.log import last_seq
from app.jobs.queries import find_job
from app.jobs.states import Status
from app.line.estimates import Place
from app.line.places import place_of
from app.streams.frames import Frame

log = structlog.get_logger(__name__)

MOVED: Final = "queue.moved"
MEANING: Final = (
    " While the job waits, notices `queue.moved` come between the events: `job_id`, `position`,"
    " `estimated_start_at` and `estimated_finish_at` as in a job's `queue`, and `at`. They are not of the log:"
    " they have no `seq` (over SSE no id) and cannot be asked for again."
)

LEAST_SECONDS: Final = 2.0  # between two notices of one job
LOOKS_A_SECOND: Final = 20.0
# What is worth a notice: a twentieth of the position, and a tenth of the wait, or so many seconds.
POSITION_SHARE: Final = 0.05
WAIT_SHARE: Final = 0.1
WAIT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Look:
    """`place` is None where the job did not wait; `looked_at` is in monotonic seconds."""

    place: Place | None
    last_seq: int
    at: datetime
    looked_at: float


@dataclass(frozen=True, slots=True)
class Found:
    """A look at a job that waits."""

    place: Place
    at: datetime
    looked_at: float


@dataclass(slots=True)
class _Watched:
    followers: int = 0
    look: Look | None = None


class Board:
    """What this process knows of the places of waiting jobs that it follows."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Watched] = {}
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._allowance = LOOKS_A_SECOND
        self._allowed_at = clock.monotonic()

    def join(self, job_id: str) -> None:
        """Share look-ups with whoever else waits with this job, until `leave`."""
        with self._lock:
            self._jobs.setdefault(job_id, _Watched()).followers += 1

    def leave(self, job_id: str) -> None:
        with self._lock:
            self._jobs[job_id].followers -= 1
            if not self._jobs[job_id].followers:
                del self._jobs[job_id]

    def look(self, job_id: str, since: float) -> Look | None:
        """The place of a job that the caller joined, looked up just now or lately; None where nothing is known
        and a look is not to be had now. That it did not wait before `since` says nothing of now.
        """
        watched = self._jobs[job_id]
        known = watched.look
        if known is not None and known.place is None and known.looked_at < since:
            known = None
        if known is not None and clock.monotonic() - known.looked_at < self._least_seconds():
            return known
        if not self._looking.acquire(blocking=False):
            return known
        try:
            if self._may_look():
                known = watched.look = _look_up(job_id)
        finally:
            self._looking.release()
        return known

    def _least_seconds(self) -> float:
        return max(LEAST_SECONDS, len(self._jobs) / LOOKS_A_SECOND)

    def _may_look(self) -> bool:
        """A token bucket: a second's worth may be spent at once."""
        now = clock.monotonic()
        refilled = self._allowance + (now - self._allowed_at) * LOOKS_A_SECOND
        self._allowance = min(LOOKS_A_SECOND, refilled)
        self._allowed_at = now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True


def _look_up(job_id: str) -> Look:
    with transaction() as session:
        job = find_job(session, job_id)
        place = place_of(session, job) if job else None
        return Look(place, last_seq(session, job_id), clock.now(), clock.monotonic())


board: Final = Board()


class Standing:
    """What one follower was told of where its job stands. As a context, so that it is given up."""

    __slots__ = ("_after", "_board", "_job_id", "_may_wait", "_since", "_told")

    def __init__(self, job_id: str, after: int) -> None:
        self._board = board
        self._job_id = job_id
        self._after: int | None = after  # None once the log said whether it waits
        self._may_wait = False
        self._since = clock.monotonic()
        self._told: Found | None = None

    def __enter__(self) -> Self:
        self._expect_wait(True)
        return self

    def __exit__(self, *_: object) -> None:
        self._expect_wait(False)

    def note(self, batch: Sequence[Frame]) -> None:
        """Frames of the log that the follower was given."""
        if not batch:
            return
        self._after = None
        waits = batch[-1].type == Status.QUEUED.event_type
        self._expect_wait(waits)
        if waits:
            self._since = clock.monotonic()
            self._told = None

    def _expect_wait(self, may_wait: bool) -> None:  # noqa: FBT001 - it is the news
        if may_wait != self._may_wait:
            self._may_wait = may_wait
            (self._board.join if may_wait else self._board.leave)(self._job_id)

    def news(self) -> list[Frame]:
        """A notice, if there is one to give; at most one."""
        found = self.find()
        if found is None or (self._told is not None and not _is_worth_telling(self._told, found)):
            return []
        self._told = found
        return [moved(self._job_id, found)]

    def find(self) -> Found | None:
        """Where the job stands; None where it does not wait, or that is not known. Never an exception."""
        if not self._may_wait:
            return None
        try:
            look = self._board.look(self._job_id, self._since)
        except Exception as error:  # noqa: BLE001 - no failure of a notice may end a stream
            log.warning("notice.failed", job_id=self._job_id, error=str(error))
            return None
        if look is None or (self._after is not None and look.last_seq != self._after):
            return None
        if look.place is None:
            self._expect_wait(False)
            return None
        return Found(look.place, look.at, look.looked_at)


def _is_worth_telling(told: Found, found: Found) -> bool:
    if found.looked_at - told.looked_at < LEAST_SECONDS:
        return False
    before, now = told.place, found.place
    if abs(now.position - before.position) >= max(1.0, before.position * POSITION_SHARE):
        return True
    if now.estimated_start_at is None or before.estimated_start_at is None:
        return now.estimated_start_at != before.estimated_start_at
    wait_seconds = (now.estimated_start_at - found.at).total_seconds()
    moved_seconds = abs((now.estimated_start_at - before.estimated_start_at).total_seconds())
    return moved_seconds >= max(WAIT_SECONDS, wait_seconds * WAIT_SHARE)


def find_queue(job_id: str, after: int) -> dict[str, int | None] | None:
    """Where a job stands that waits after this event, as `views.QueuePlace`; None also where a look is not to
    be had, for whatever reason.
    """
    with Standing(job_id, after) as standing:
        found = standing.find()
    return views.queue(found.place) if found else None


def moved(job_id: str, found: Found) -> Frame:
    """The notice. Its sequence number is 0, which the log never gives, and not in its JSON."""
    fields = {"type": MOVED, "job_id": job_id, **(views.queue(found.place) or {}), "at": found.at}
    return Frame(0, 0, MOVED, orjson.dumps(fields, option=orjson.OPT_UTC_Z))
