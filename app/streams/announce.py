"""Tell followers of a job's events, after the commit that made them true. A failure costs a follower a second:
the hub also looks into Postgres.
"""

from collections.abc import Iterable

import structlog
from sqlalchemy.orm import Session

from app.db import call_after_commit
from app.jobs.tables import JobEvent
from app.redis import RedisError, client
from app.streams import frames, tail

log = structlog.get_logger(__name__)


def announce_after_commit(session: Session, *events: JobEvent) -> None:
    call_after_commit(session, lambda: announce(events))


def announce(events: Iterable[JobEvent]) -> None:
    """Publish committed events, in one round trip."""
    try:
        with client().pipeline(transaction=False) as pipe:
            for event in events:
                tail.announce(pipe, event.job_id, frames.of_event(event))
            pipe.execute()
    except (RedisError, OSError) as error:
        log.warning("announce.failed", error=str(error))


def ask_to_cancel(job_id: str) -> None:
    """Wake the worker that runs this job; its heartbeat would find the mark in the row a little later."""
    try:
        client().publish(tail.CANCEL_CHANNEL, job_id)
    except (RedisError, OSError) as error:
        log.warning("cancel.announce_failed", job_id=job_id, error=str(error))
