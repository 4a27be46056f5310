"""Waiting inside a request: for a job to end, without asking the database again and again."""

from app import clock
from app.api import draining
from app.streams import channel

TICK_SECONDS = 0.5


def until_ended(job_id: str, after: int, seconds: float) -> None:
    """Return when the job has ended, when `seconds` have passed, or when this server is about to stop."""
    deadline = clock.monotonic() + seconds
    for _ in channel.follow(job_id, after, tick_seconds=min(TICK_SECONDS, max(seconds, 0.01))):
        if clock.monotonic() >= deadline or draining.has_begun():
            return


def until_more(job_id: str, after: int, seconds: float) -> None:
    """As `until_ended`, but any event will do."""
    deadline = clock.monotonic() + seconds
    for batch in channel.follow(job_id, after, tick_seconds=min(TICK_SECONDS, max(seconds, 0.01))):
        if batch or clock.monotonic() >= deadline or draining.has_begun():
            return
