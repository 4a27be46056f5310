"""The one function that changes a job's status. It updates the row only where the transition allows it and
the caller's condition holds (a lease, a deadline), and writes the event in the same transaction. Every verb
of the lifecycle goes through it; nobody else assigns a status.
"""

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.orm import Session

from app.jobs import log, usage
from app.jobs.states import Status, Transition
from app.jobs.tables import Job, JobEvent, JobSegment

# A job that is placed on a worker, and no longer.
UNPLACED: Final[dict[str, None]] = {"placed_on": None, "rung_at": None}
NO_LEASE: Final[dict[str, None]] = {"lease_id": None, "worker_id": None, "lease_expires_at": None}


@dataclass(frozen=True, slots=True)
class Move:
    """A change that took place: the row after it, and its event."""

    job: Job
    event: JobEvent


def move(
    session: Session,
    job_id: str,
    transition: Transition,
    *where: ColumnElement[bool],
    values: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
    void: bool = False,
) -> Move | None:
    """None where the job is not in an allowed status or `where` does not hold: another was faster."""
    target = transition.target
    changes = {**(values or {}), "status": target}
    if target.is_terminal:
        changes |= {**UNPLACED, "finished_at": func.now(), "output_tokens": stored_output_tokens()}
    job = session.scalar(
        update(Job)
        .where(Job.id == job_id, Job.status.in_(transition.sources), *where)
        .values({getattr(Job, name): value for name, value in changes.items()})
        .returning(Job)
        .execution_options(populate_existing=True, synchronize_session=False)
    )
    if job is None:
        return None
    if target is not Status.IN_PROGRESS:
        usage.record(session, job)
    event = log.append_event(session, job_id, target.event_type, {**facts(job), **(data or {})}, void=void)
    return Move(job, event)


def facts(job: Job) -> dict[str, Any]:
    """What a status event says of its job."""
    if not job.status.is_terminal:
        return {"attempt": job.attempt}
    return {
        "attempt": job.attempt,
        "usage": usage_of(job),
        "error": error(job),
        "incomplete_details": incomplete_details(job),
    }


def usage_of(job: Job) -> dict[str, Any]:
    """Token counts in OpenAI's shape."""
    return {
        "input_tokens": job.input_tokens,
        "input_tokens_details": {"cached_tokens": job.cached_tokens},
        "output_tokens": job.output_tokens,
        "total_tokens": job.input_tokens + job.output_tokens,
    }


def error(job: Job) -> dict[str, str | None] | None:
    return {"code": job.error_code, "message": job.error_message} if job.error_code else None


def incomplete_details(job: Job) -> dict[str, str] | None:
    return {"reason": job.incomplete_reason} if job.incomplete_reason else None


def stored_output_tokens() -> ColumnElement[int]:
    """How many output tokens the stored segments of the updated job hold."""
    counted = select(func.coalesce(func.sum(func.octet_length(JobSegment.token_ids)) / 4, 0))
    return counted.where(
        JobSegment.job_id == Job.id, JobSegment.first_seq > Job.output_start_seq
    ).scalar_subquery()
