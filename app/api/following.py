"""Following a job for a connection: bounded in number, through an outage of the database, until the job ends,
the caller's key is revoked, or this server is about to stop. It knows no wire format.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Final

import structlog
from pydantic import Field

from app import clock
from app.api import auth, draining, notices
from app.api.errors import DATABASE_AWAY, KeyMissing, ServerBusy
from app.streams import channel
from app.streams.frames import Frame
from config.settings import settings

log = structlog.get_logger(__name__)

# Where in a log to go on.
Cursor = Annotated[int, Field(ge=0, le=2**62, description="The last sequence number that you have.")]

# How soon a follower notices that its client left or that this server stops.
TICK_SECONDS: Final = 1.0


class Places:
    """How many followers this process holds."""

    def __init__(self) -> None:
        self.taken = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self.taken += count


places: Final = Places()


def require_place() -> None:
    """Raises `ServerBusy` where another follower is not taken."""
    if draining.has_begun():
        raise ServerBusy("This server is about to stop; connect again.")
    if places.taken >= settings().max_followers:
        raise ServerBusy("This server follows as many streams as it may; try again or try another.")


@contextmanager
def place() -> Iterator[None]:
    """Hold one while following or waiting."""
    places.add(1)
    try:
        yield
    finally:
        places.add(-1)


def batches(job_id: str, after: int, key_hash: bytes) -> Iterator[list[Frame]]:
    """As `channel.follow`, with an empty list at least every second, and lists of one notice (`notices`) while
    the job waits. Ends early when this server stops. Raises `JobNotFound` when the job is deleted and
    `KeyMissing` when the key is revoked.
    """
    with place(), notices.Standing(job_id, after) as standing:
        yield from _with_notices(standing, job_id, after, key_hash)


def _with_notices(
    standing: notices.Standing, job_id: str, after: int, key_hash: bytes
) -> Iterator[list[Frame]]:
    if news := standing.news():
        yield news
    checked_at = clock.monotonic()
    for batch in steadily(job_id, after, partial(channel.follow, tick_seconds=TICK_SECONDS)):
        yield batch
        standing.note(batch)
        del batch  # not held while waiting for the next, thousands of times over
        if draining.has_begun():
            return
        if news := standing.news():
            yield news
        if clock.monotonic() - checked_at >= settings().ping_seconds:
            checked_at = clock.monotonic()
            require_valid(key_hash)


Follow = Callable[[str, int], Iterator[list[Frame]]]


def steadily(job_id: str, after: int, follow: Follow, again: Follow | None = None) -> Iterator[list[Frame]]:
    """Go on from the last frame when the database comes back, with `again` where that differs."""
    while True:
        try:
            for batch in follow(job_id, after):
                if batch:
                    after = batch[-1].seq
                yield batch
                del batch
        except DATABASE_AWAY as error:
            log.warning("follower.database_away", job_id=job_id, error=str(error))
        else:
            return
        yield []
        clock.sleep(TICK_SECONDS)
        follow = again or follow


def require_valid(key_hash: bytes) -> None:
    """Raises `KeyMissing` once a key is revoked."""
    try:
        auth.account_of(key_hash)
    except KeyMissing:
        raise
    except DATABASE_AWAY as error:
        log.warning("follower.key_unchecked", error=str(error))
