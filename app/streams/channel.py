"""Follow a job from any cursor: replay what is stored, then the live tail, then what comes, to the terminal
event. However the pieces arrive, a follower gets every sequence number once and in order.
"""

from collections.abc import Iterator
from typing import Final

import structlog

from app import clock
from app.db import transaction
from app.jobs.errors import JobNotFound
from app.jobs.log import read_log
from app.jobs.queries import find_job
from app.redis import RedisError, client
from app.streams import frames, tail
from app.streams.frames import Frame
from app.streams.hub import Inbox, hub

log = structlog.get_logger(__name__)

PAGE_ROWS: Final = 500
# A live frame that does not continue the cursor: what lies between is on its way into Postgres.
HOLE_SECONDS: Final = 0.1


def read_page(job_id: str, after: int, limit: int = PAGE_ROWS) -> list[Frame]:
    """What directly follows `after`, stored or live, about `limit` frames; empty if there is nothing yet.
    Raises `JobNotFound`.
    """
    with transaction() as session:
        rows = read_log(session, job_id, after, limit)
        if not rows and find_job(session, job_id) is None:
            raise JobNotFound(job_id)
    page: list[Frame] = []
    for row in rows:
        for frame in frames.of_row(row, after):
            page.append(frame)
            after = frame.seq
    if len(rows) < limit and not (page and page[-1].is_last):
        page += _read_tail(job_id, after)
    return page


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
        cursor = after
        while True:
            for page in _catch_up(job_id, cursor):
                yield page
                cursor = page[-1].seq
                if page[-1].is_last:
                    return
            if _has_ended(job_id, cursor):
                return
            inbox.cursor = cursor
            for batch in _live(inbox, cursor, tick_seconds):
                yield batch
                if batch:
                    cursor = batch[-1].seq
                    if batch[-1].is_last:
                        return


def _catch_up(job_id: str, cursor: int) -> Iterator[list[Frame]]:
    while page := read_page(job_id, cursor):
        yield page
        cursor = page[-1].seq
        if page[-1].is_last:
            return


def _has_ended(job_id: str, cursor: int) -> bool:
    """Whether the cursor already lies at or beyond the terminal event."""
    with transaction() as session:
        job = find_job(session, job_id)
        if job is None:
            raise JobNotFound(job_id)
        return job.status.is_terminal and not read_log(session, job_id, cursor, 1)


def _live(inbox: Inbox, cursor: int, tick_seconds: float) -> Iterator[list[Frame]]:
    """What comes, until the inbox no longer continues the cursor."""
    while True:
        batch: list[Frame] = []
        came = inbox.take(tick_seconds)
        for frame in came:
            if frame.seq <= cursor and not frame.is_last:
                continue
            if frame.first_seq != cursor + 1:
                if batch:
                    yield batch
                else:
                    clock.sleep(HOLE_SECONDS)
                return
            batch.append(frame)
            cursor = inbox.cursor = frame.seq
        if batch or not came:
            yield batch
        if inbox.behind:
            inbox.behind = False
            return
