"""What operators do to the line: stop and start it, and say who goes earlier. The verbs take the caller's
session and never commit; whoever calls them wakes the dispatcher afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.jobs.errors import IllegalTransition, JobNotFound, ModelNotFound, RequestInvalid
from app.jobs.moves import UNPLACED
from app.jobs.queries import find_job
from app.jobs.states import Status
from app.jobs.tables import Job
from app.line.placing import charge
from app.line.tables import Line, LineState
from config.catalogue import catalogue
from config.queues import Tier
from config.settings import settings

# Postgres keeps no shorter time.
STEP = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Changed:
    """A line's state, before and after."""

    model: str
    tier: Tier
    was: LineState
    state: LineState


class End(StrEnum):
    """Of an account's part of a line."""

    FRONT = "front"
    BACK = "back"


@dataclass(frozen=True, slots=True)
class Before:
    """Right before another job of the same account and line."""

    job_id: str


def set_state(session: Session, model: str, tier: Tier | None, state: LineState) -> list[Changed]:
    """Of one of a model's lines, or of both. Raises `ModelNotFound`."""
    if model not in catalogue():
        raise ModelNotFound(model, list(catalogue()))
    return [_set_state(session, model, each, state) for each in ([tier] if tier else list(Tier))]


def _set_state(session: Session, model: str, tier: Tier, state: LineState) -> Changed:
    line = (Line.model == model, Line.tier == tier)
    session.execute(insert(Line).values(model=model, tier=tier).on_conflict_do_nothing())
    was = session.scalars(select(Line.state).where(*line).with_for_update()).one()
    session.execute(update(Line).where(*line).values(state=state))
    return Changed(model, tier, was, state)


def move_job(session: Session, job_id: str, where: End | Before) -> int:
    """Let a queued job go earlier or later than the other jobs of its account in its line; between accounts,
    the line stays fair. Returns how many of its account's jobs are now ahead. Raises `JobNotFound`,
    `IllegalTransition` unless the jobs wait, `RequestInvalid` where the two do not stand in one line.
    """
    job = _lock_waiting(session, job_id, "be moved")
    if isinstance(where, Before):
        order_at = _right_before(session, job, where.job_id)
    else:
        order_at = _end(session, job, where)
    _change(session, job, order_at=order_at)
    ahead = select(func.count()).where(*_same_line(job), Job.order_at < order_at)
    return session.scalar(ahead) or 0


def set_tier(session: Session, job_id: str, tier: Tier) -> bool:
    """Put a queued job into the other line of its model, where it stands as if it had been submitted there.
    What its client agreed to stays: the price, the completion window and its end. Returns whether that is a
    change. Raises `JobNotFound`, `IllegalTransition`.
    """
    job = _lock_waiting(session, job_id, "change its tier")
    if job.tier is tier:
        return False
    if job.charged_tokens:
        # Its account was charged in the line that it leaves; in the other one it will be when it is placed.
        charge(session, {(job.account_id, job.model, job.tier): -job.charged_tokens})
    is_due = tier is Tier.BATCH and job.due_at is not None
    order_at = job.due_at if is_due else job.created_at
    _change(session, job, tier=tier, order_at=order_at, charged_tokens=0, **UNPLACED)
    return True


def _change(session: Session, job: Job, **values: Any) -> None:
    statement = update(Job).where(Job.id == job.id).values(values)
    session.execute(statement.execution_options(synchronize_session=False))
    session.expire(job)


def _lock_waiting(session: Session, job_id: str, verb: str) -> Job:
    """The job's row, held. Raises unless it waits and no worker was rung for it just now."""
    if find_job(session, job_id) is None:
        raise JobNotFound(job_id)
    job = session.scalar(
        select(Job).where(Job.id == job_id).with_for_update().execution_options(populate_existing=True)
    )
    if job is None:
        raise JobNotFound(job_id)
    if job.status is not Status.QUEUED:
        raise IllegalTransition(job_id, verb, job.status)
    if job.placed_on is not None and _was_rung_lately(session, job):
        raise IllegalTransition(job_id, verb, "about to start")
    return job


def _was_rung_lately(session: Session, job: Job) -> bool:
    """By the database's clock, which wrote `rung_at`."""
    since = func.now() - timedelta(seconds=settings().ring_after_seconds)
    return bool(session.scalar(select(Job.rung_at > since).where(Job.id == job.id)))


def _end(session: Session, job: Job, end: End) -> datetime:
    """Where the account's first job in the line stands, or its last, and a step beyond."""
    first = end is End.FRONT
    edges = [
        session.scalar(
            select(Job.order_at)
            .where(*_same_line(job), Job.is_long.is_(is_long))
            .order_by(Job.order_at.asc() if first else Job.order_at.desc())
            .limit(1)
        )
        for is_long in (False, True)
    ]
    others: Sequence[datetime] = [edge for edge in edges if edge is not None]
    if not others:
        return job.order_at
    return min(others) - STEP if first else max(others) + STEP


def _right_before(session: Session, job: Job, other_id: str) -> datetime:
    """Also before those that stand at the very same time as the other one."""
    if other_id == job.id:
        raise RequestInvalid("before", f"Job '{job.id}' cannot go before itself.")
    other = find_job(session, other_id)
    if other is None:
        raise JobNotFound(other_id)
    if other.status is not Status.QUEUED:
        raise IllegalTransition(other_id, "have another moved before it", other.status)
    if (other.account_id, other.model, other.tier) != (job.account_id, job.model, job.tier):
        raise RequestInvalid(
            "before",
            f"Jobs '{job.id}' and '{other_id}' are not of one account, model and tier: fairness orders them.",
        )
    return other.order_at - STEP


def _same_line(job: Job) -> tuple[ColumnElement[bool], ...]:
    """The other jobs of its account that wait in its line."""
    return (
        Job.status == Status.QUEUED,
        Job.model == job.model,
        Job.tier == job.tier,
        Job.account_id == job.account_id,
        Job.id != job.id,
    )
