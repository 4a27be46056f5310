"""What changes a job's status: `move`, and `move_many` which ends many that wait. It updates a row only where
the transition allows it and the caller's condition holds (a lease, a deadline), and writes the event in the
same transaction. Every verb of the lifecycle goes through here; nobody else assigns a status.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ARRAY, ColumnElement, Text, bindparam, func, select, text, update
from sqlalchemy.dialects.postgresql import UUID
from sqlalchemy.orm import Session

from app.ids import to_uuid
from app.jobs import log, usage
from app.jobs.states import TERMINAL_EVENT_TYPES, Status, Transition
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
    changes = _ended(transition, values) if target.is_terminal else {**(values or {}), "status": target}
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


def move_many(
    session: Session,
    transition: Transition,
    *where: ColumnElement[bool],
    values: dict[str, Any] | None = None,
    limit: int,
) -> Sequence[JobEvent]:
    """As `move` to an end, for up to `limit` queued jobs in three statements. Those that another transaction
    holds are left out. Their events.
    """
    chosen = (
        select(Job.id)
        .where(Job.status == Status.QUEUED, *where)
        .order_by(Job.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    job_ids = session.scalars(
        update(Job)
        .where(Job.id.in_(chosen.cte("chosen").select()), Job.status.in_(transition.sources))
        .values({getattr(Job, name): value for name, value in _ended(transition, values).items()})
        .returning(Job.id)
        .execution_options(synchronize_session=False)
    ).all()
    if not job_ids:
        return []
    usage.record_many(session, job_ids)
    return _append_endings(session, job_ids, transition.target)


def _ended(transition: Transition, values: dict[str, Any] | None) -> dict[str, Any]:
    return {
        **(values or {}),
        **UNPLACED,
        "status": transition.target,
        "finished_at": func.now(),
        "output_tokens": stored_output_tokens(),
    }


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


# As `facts` says it of an ended job.
_APPEND: Final = text(f"""
    INSERT INTO job_events (job_id, seq, first_seq, type, data, is_due)
    SELECT jobs.id, stored.seq + 1, stored.seq + 1, :type, jsonb_build_object(
            'attempt', jobs.attempt,
            'usage', jsonb_build_object(
                'input_tokens', jobs.input_tokens,
                'input_tokens_details', jsonb_build_object('cached_tokens', jobs.cached_tokens),
                'output_tokens', jobs.output_tokens,
                'total_tokens', jobs.input_tokens + jobs.output_tokens),
            'error', CASE WHEN jobs.error_code IS NOT NULL
                THEN jsonb_build_object('code', jobs.error_code, 'message', jobs.error_message) END,
            'incomplete_details', CASE WHEN jobs.incomplete_reason IS NOT NULL
                THEN jsonb_build_object('reason', jobs.incomplete_reason) END
        ), {log.IS_DUE}
    FROM jobs JOIN accounts ON accounts.id = jobs.account_id,
        LATERAL (SELECT coalesce(greatest(
            (SELECT max(seq) FROM job_events WHERE job_id = jobs.id),
            (SELECT max(seq) FROM job_segments WHERE job_id = jobs.id)
        ), 0) AS seq) stored
    WHERE jobs.id = ANY(:job_ids)
    RETURNING job_id, seq, first_seq, type, data, created_at
""").bindparams(  # noqa: S608 - of our own text
    bindparam("job_ids", type_=ARRAY(UUID)),
    bindparam("type", type_=Text),
    bindparam("ending_types", sorted(TERMINAL_EVENT_TYPES), type_=ARRAY(Text)),
)


def _append_endings(session: Session, job_ids: Sequence[str], status: Status) -> list[JobEvent]:
    """Write the last event of each of many jobs, whose rows this transaction has locked and ended."""
    values = {"job_ids": [to_uuid("job", job_id) for job_id in job_ids], "type": status.event_type}
    rows = session.connection().execute(_APPEND, values)
    return [JobEvent(**{**row._mapping, "job_id": f"job_{row.job_id.hex}"}) for row in rows]  # noqa: SLF001 - public, in spite of its name


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
