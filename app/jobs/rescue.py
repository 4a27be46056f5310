"""What happens to a job that no living worker holds: its lease ran out, or it waited too long. The janitor's
verbs. Breaking a lease stores what the lost worker had shown (its tail, read from Redis by the caller), so
that a stream goes on where it paused, and voids whatever it may have shown beyond that.
"""

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, case, delete, func, select
from sqlalchemy.orm import Session

from app.jobs import log, states
from app.jobs.moves import NO_LEASE, Move, move, move_many
from app.jobs.queries import is_held
from app.jobs.retry import GiveUp, after_lost_attempt
from app.jobs.states import IncompleteReason, RequeueReason, Transition
from app.jobs.tables import Job, JobEvent, Worker

LOST_CODE = "worker_lost"


def find_lost(session: Session, limit: int) -> list[tuple[str, str, int]]:
    """Jobs whose lease has run out: (job id, lease id, attempt)."""
    statement = (
        select(Job.id, Job.lease_id, Job.attempt)
        .where(Job.status == states.Status.IN_PROGRESS, Job.lease_expires_at <= func.now())
        .limit(limit)
    )
    return [(row.id, row.lease_id, row.attempt) for row in session.execute(statement) if row.lease_id]


def rescue(
    session: Session, job_id: str, lease_id: str, tail: list[log.Segment], max_attempts: int
) -> Move | None:
    """Break an expired lease: back into the line, or to the end that is due. None if its worker came back or
    another janitor has it. `tail` is output that was shown but not stored.
    """
    job = session.scalar(
        select(Job)
        .where(Job.id == job_id, Job.lease_id == lease_id, Job.lease_expires_at <= func.now())
        .with_for_update(skip_locked=True)
    )
    if job is None:
        return None
    log.store_segments(session, log.following(tail, log.last_seq(session, job_id)))
    transition, values, data = _decide(session, job, max_attempts, RequeueReason.WORKER_LOST)
    data["output_offset"] = log.output_chars(session, job)
    return move(session, job_id, transition, Job.lease_id == lease_id, values=values, data=data, void=True)


def outlive_engine(session: Session, job_id: str, lease_id: str, max_attempts: int) -> Move | None:
    """What a worker does with its jobs when its engine died under them: as for a lost worker, since any of
    them may be what killed it; but nothing that was shown is unstored. None if the lease is gone.
    """
    job = session.scalar(select(Job).where(Job.id == job_id, Job.lease_id == lease_id).with_for_update())
    if job is None:
        return None
    transition, values, data = _decide(session, job, max_attempts, RequeueReason.ENGINE_DEAD)
    return move(session, job_id, transition, Job.lease_id == lease_id, values=values, data=data)


def _decide(
    session: Session, job: Job, max_attempts: int, reason: RequeueReason
) -> tuple[Transition, dict[str, Any], dict[str, Any]]:
    """What becomes of a job whose worker or engine is gone: the transition, its columns, its event's data."""
    if job.cancel_requested_at is not None:
        return states.CANCEL, {**NO_LEASE}, {}
    decision = after_lost_attempt(
        attempt=job.attempt,
        lost_attempts=job.lost_attempts,
        progressed=log.has_output_of(session, job.id, job.attempt),
        max_attempts=max_attempts,
        jitter=random.random(),  # noqa: S311 - spreads retries, guards nothing
    )
    if isinstance(decision, GiveUp):
        message = (
            f"The worker died {decision.lost_attempts} times in a row while it ran this job, without progress."
            if decision.lost_attempts >= max_attempts
            else f"The worker died in each of {job.attempt} attempts at this job."
        )
        failed = {"error_code": LOST_CODE, "error_message": message}
        return states.FAIL, {**NO_LEASE, **failed, "lost_attempts": decision.lost_attempts}, {}
    back = {"available_at": func.now() + decision.delay}
    return states.REQUEUE, {**NO_LEASE, **back, "lost_attempts": decision.lost_attempts}, {"reason": reason}


def expire(session: Session, limit: int) -> Sequence[JobEvent]:
    """End jobs whose time to start has passed. Their events."""
    due = (Job.expires_at <= func.now(), Job.started_at.is_(None))
    return move_many(session, states.EXPIRE, *due, limit=limit)


def stop_overdue(session: Session, limit: int) -> Sequence[JobEvent]:
    """End jobs that had started, and whose total time or completion window has passed between two attempts.
    Their events.
    """
    reason = case(
        (Job.deadline_at == Job.due_at, IncompleteReason.COMPLETION_WINDOW),
        else_=IncompleteReason.TOTAL_TIMEOUT,
    )
    values = {"incomplete_reason": reason}
    return move_many(session, states.STOP_EARLY, Job.deadline_at <= func.now(), values=values, limit=limit)


def delete_finished(session: Session, older_than: timedelta, limit: int) -> int:
    """Drop jobs that ended longer ago than the retention, with their logs, but for lines of a batch that has
    not ended. Returns how many.
    """
    return _delete(session, older_than, limit)


def delete_unstored(session: Session, older_than: timedelta, limit: int) -> int:
    """As `delete_finished`, of the jobs that are not to be stored."""
    return _delete(session, older_than, limit, ~Job.is_stored)


def _delete(session: Session, older_than: timedelta, limit: int, *which: ColumnElement[bool]) -> int:
    ids = session.scalars(
        select(Job.id)
        .where(Job.finished_at < func.now() - older_than, ~is_held(), ~_has_due_events(), *which)
        .limit(limit)
        .with_for_update(skip_locked=True)
    ).all()
    log.erase(session, ids)
    return len(ids)


def _has_due_events() -> ColumnElement[bool]:
    """Webhooks are still to be made of it."""
    return select(JobEvent.seq).where(JobEvent.job_id == Job.id, JobEvent.is_due).exists()


def forget_workers(session: Session, unseen_for: timedelta) -> Sequence[str]:
    """Drop workers that died without a word. Returns their ids."""
    gone = delete(Worker).where(Worker.seen_at < func.now() - unseen_for).returning(Worker.id)
    return session.scalars(gone).all()
