"""Cancelling a job over HTTP: at once where it waits, by its worker where it runs."""

from app.api import waiting
from app.db import transaction
from app.jobs import lifecycle, log
from app.jobs.queries import find_status
from app.streams.announce import announce_after_commit, ask_to_cancel
from config.settings import settings


def request_cancel(job_id: str) -> int | None:
    """The last number of the job's log where it still runs; None where it has ended or does not exist."""
    with transaction() as session:
        move = lifecycle.request_cancel(session, job_id)
        if move:
            announce_after_commit(session, move.event)
        status = find_status(session, job_id)
        after = log.last_seq(session, job_id)
    if status is None or status.is_terminal:
        return None
    ask_to_cancel(job_id)
    return after


def cancel(job_id: str) -> None:
    """Cancel, and give a worker time to settle."""
    after = request_cancel(job_id)
    if after is not None:
        waiting.until_ended(job_id, after, settings().cancel_wait_seconds)
