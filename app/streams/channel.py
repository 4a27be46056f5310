"""Follow a job from any cursor: replay what is stored, then the live tail, then what comes, to the terminal
event. However the pieces arrive, a follower gets every sequence number once and in order.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import structlog

from app import clock
from app.db import transaction
from app.jobs.errors import JobNotFound
from app.jobs.log import read_log
from app.jobs.queries import find_status
from app.jobs.tables import JobEvent, JobSegment
from app.redis import RedisError, client
from app.streams import frames, tail
from app.streams.frames import Frame
from app.streams.hub import Inbox, hub

log = structlog.get_logger(__name__)

PAGE_ROWS: Final = 200
PAGE_ROWS_IN_PIECES: Final = 20  # of half a second's output each
# A live frame that does not continue the cursor, and nothing stored that does: it is on its way into Postgres.
HOLE_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Page:
    """What directly follows a cursor: `is_full` if there may be more, `is_over` if the job has ended and there
    is nothing.
    """

    frames: list[Frame]
    is_full: bool
    is_over: bool


Shape = Callable[[JobEvent | JobSegment, int], Iterator[Frame]]


def read_page(job_id: str, after: int, limit: int = PAGE_ROWS, shape: Shape = frames.of_row) -> Page:
    """Stored and then live frames after a cursor, about `limit` rows of them. Raises `JobNotFound`."""
    with transaction() as session:
        # The status first: once it is terminal, the log that is read after it is complete.
        status = find_status(session, job_id)
        rows = read_log(session, job_id, after, limit)
    if status is None:
        raise JobNotFound(job_id)
    found: list[Frame] = []
    for row in rows:
        for frame in shape(row, after):
            found.append(frame)
            after = frame.seq
    is_full = len(rows) == limit
    if not status.is_terminal and not is_full:
        found += _read_tail(job_id, after)
    return Page(found, is_full, is_over=status.is_terminal and not found)


def _read_tail(job_id: str, after: int) -> list[Frame]:
    try:
        return tail.read(client(), job_id, after)
    except (RedisError, OSError) as error:
        log.warning("tail.unreadable", job_id=job_id, error=str(error))
        return []


def follow(job_id: str, after: int, *, tick_seconds: float) -> Iterator[list[Frame]]:
    """Frames after `after`, in small lists as they come, ending with the terminal one. An empty list comes
    when nothing did for `tick_seconds`, so that the caller can see to its connection. Raises `JobNotFound`,
    also when the job is deleted meanwhile.
    """
    with hub().watch(job_id) as inbox:
        yield from _follow(inbox, job_id, after, tick_seconds, frames.of_row)


def follow_in_pieces(job_id: str, after: int, *, tick_seconds: float) -> Iterator[list[Frame]]:
    """As `follow`, one frame a sequence number of output, however old it is."""
    with hub().watch(job_id) as inbox:
        yield from _follow(inbox, job_id, after, tick_seconds, frames.pieces_of_row)


def follow_new(inbox: Inbox, job_id: str, after: int, *, tick_seconds: float) -> Iterator[list[Frame]]:
    """As `follow_in_pieces`, for whoever has watched the job since before it could begin and has all that was
    stored of it: nothing is read unless something was missed.
    """
    for batch in _live(inbox, after, tick_seconds):
        yield batch
        if batch:
            after = batch[-1].seq
            if batch[-1].is_last:
                return
    yield from _follow(inbox, job_id, after, tick_seconds, frames.pieces_of_row)


def _follow(inbox: Inbox, job_id: str, cursor: int, tick_seconds: float, shape: Shape) -> Iterator[list[Frame]]:
    limit = PAGE_ROWS if shape is frames.of_row else PAGE_ROWS_IN_PIECES
    has_hole = False
    while True:
        # Before reading: what is dropped from the inbox meanwhile has to be read again.
        inbox.behind = False
        page = read_page(job_id, cursor, limit, shape)
        if page.is_over:
            return
        if page.frames:
            yield page.frames
            cursor = page.frames[-1].seq
            if page.frames[-1].is_last:
                return
        elif has_hole:
            clock.sleep(HOLE_SECONDS)
        if page.is_full:
            continue
        del page  # its frames would stay for as long as this follower does
        for batch in _live(inbox, cursor, tick_seconds):
            yield batch
            if batch:
                cursor = batch[-1].seq
                if batch[-1].is_last:
                    return
        has_hole = not inbox.behind


def _live(inbox: Inbox, cursor: int, tick_seconds: float) -> Iterator[list[Frame]]:
    """What comes, until the inbox no longer continues the cursor: there is a hole, or it is `behind`."""
    inbox.cursor = cursor
    while True:
        batch: list[Frame] = []
        came = inbox.take(tick_seconds)
        for frame in came:
            if frame.seq <= cursor and not frame.is_last:
                continue
            if frame.first_seq != cursor + 1:
                if batch:
                    yield batch
                return
            batch.append(frame)
            cursor = inbox.cursor = frame.seq
        if batch or not came:
            yield batch
        if inbox.behind:
            return
