"""The verbs of clients and workers: everything that may happen to a stored job whose worker lives. Each goes
through `moves.move`; those of a worker hold only under its lease. Functions take the caller's session and never
commit. The loser of a race gets None. What happens to a job whose worker is gone is in `rescue`.
"""

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import and_, case, func, or_, select, update
from sqlalchemy.orm import Session

from app.jobs import log, states, usage
from app.jobs.moves import NO_LEASE, UNPLACED, Move, move
from app.jobs.states import IncompleteReason, RequeueReason, Status, Transition
from app.jobs.tables import Job, JobEvent
from config.queues import Tier
from config.settings import settings


@dataclass(frozen=True, slots=True)
class Prefill:
    """What reading the prompt took. Only the first attempt's counts are kept: when a later attempt reads the
    output so far again, that is not input. `first_token_age_seconds` is how long ago the first token came.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    first_token_age_seconds: float | None = None


def claim(
    session: Session, job_id: str, worker_id: str, lease_seconds: float, tiers: Collection[Tier] = tuple(Tier)
) -> Move | None:
    """Take a queued job of one of `tiers`, with a fresh lease."""
    total_seconds = Job.request["timeouts"]["total_seconds"].as_float()
    return move(
        session,
        job_id,
        states.CLAIM,
        Job.available_at <= func.now(),
        Job.tier.in_(tiers),
        or_(Job.expires_at.is_(None), Job.expires_at > func.now(), Job.started_at.is_not(None)),
        Job.cancel_requested_at.is_(None),
        values={
            **UNPLACED,
            "attempt": Job.attempt + 1,
            "lease_id": str(uuid.uuid4()),
            "worker_id": worker_id,
            "lease_expires_at": func.now() + timedelta(seconds=lease_seconds),
            "started_at": func.coalesce(Job.started_at, func.now()),
            "claimed_at": func.now(),
            # The end of a completion window stops a job that runs, too. LEAST passes over nulls.
            "deadline_at": func.coalesce(
                Job.deadline_at,
                func.least(func.now() + func.make_interval(0, 0, 0, 0, 0, 0, total_seconds), Job.due_at),
            ),
        },
    )


def lock(session: Session, job_id: str) -> None:
    """Hold the job's row until the end of the transaction."""
    session.execute(select(Job.id).where(Job.id == job_id).with_for_update())


def renew(session: Session, lease_ids: Sequence[str], lease_seconds: float) -> dict[str, bool]:
    """Extend leases by the database's clock. Returns those still held, each with whether its job is to be
    cancelled. An expired lease that nobody broke is still held.
    """
    # Locked in id order, as `log.store_segments` does: the two run side by side in every worker.
    held = (
        select(Job.id).where(Job.lease_id.in_(lease_ids)).order_by(Job.id).with_for_update(key_share=True)
    ).cte("held")
    statement = (
        update(Job)
        .where(Job.id == held.c.id, Job.lease_id.in_(lease_ids))
        .values(lease_expires_at=func.now() + timedelta(seconds=lease_seconds))
        .returning(Job.lease_id, Job.cancel_requested_at)
    )
    return {row.lease_id: row.cancel_requested_at is not None for row in session.execute(statement)}


def note_prefill(session: Session, prefill_by_lease: Mapping[str, Prefill]) -> None:
    """Store when first tokens came and what their prompts took."""
    for lease_id, prefill in prefill_by_lease.items():
        session.execute(update(Job).where(Job.lease_id == lease_id).values(_first(prefill)))


def restart(session: Session, job_id: str, lease_id: str) -> JobEvent | None:
    """Throw away the output so far and begin again: for output that cannot be continued."""
    job = session.scalar(select(Job).where(Job.id == job_id, Job.lease_id == lease_id).with_for_update())
    if job is None:
        return None
    event = log.append_event(session, job_id, log.REWIND, {"offset": 0})
    job.output_start_seq = event.seq
    session.flush()
    usage.void_output(session, job_id)
    return event


def complete(session: Session, job_id: str, lease_id: str, prefill: Prefill) -> Move | None:
    return _settle(session, job_id, lease_id, states.COMPLETE, prefill)


def stop_early(
    session: Session, job_id: str, lease_id: str, prefill: Prefill, reason: IncompleteReason
) -> Move | None:
    return _settle(session, job_id, lease_id, states.STOP_EARLY, prefill, incomplete_reason=reason)


def fail(
    session: Session, job_id: str, lease_id: str, prefill: Prefill, code: str, message: str
) -> Move | None:
    return _settle(session, job_id, lease_id, states.FAIL, prefill, error_code=code, error_message=message)


def cancel(session: Session, job_id: str, lease_id: str, prefill: Prefill) -> Move | None:
    return _settle(session, job_id, lease_id, states.CANCEL, prefill)


def hand_back(
    session: Session, job_id: str, lease_id: str, prefill: Prefill, reason: RequeueReason
) -> Move | None:
    """Put a job back into the line, at its old place, with all its output, uncharged; one that is to be
    cancelled ends instead.
    """
    values = {**NO_LEASE, **_first(prefill)}
    back = {**values, "available_at": func.now() + _delay(reason)}
    if reason is RequeueReason.PREEMPTED:
        preemptions = Job.preemptions + 1
        back |= {
            "preemptions": preemptions,
            "is_preemptible": and_(Job.is_preemptible, preemptions < settings().max_preemptions),
        }
    moved = move(
        session,
        job_id,
        states.REQUEUE,
        Job.lease_id == lease_id,
        Job.cancel_requested_at.is_(None),
        values=back,
        data={"reason": reason},
    )
    return moved or move(session, job_id, states.CANCEL, Job.lease_id == lease_id, values=values)


def _delay(reason: RequeueReason) -> timedelta:
    """An engine that has no room now has none a millisecond later."""
    return timedelta(seconds=1 if reason is RequeueReason.ENGINE_BUSY else 0)


def request_cancel(session: Session, job_id: str) -> Move | None:
    """Cancel a queued job at once; mark a running one, for its worker to stop. None unless it ended now."""
    marked = {"cancel_requested_at": func.coalesce(Job.cancel_requested_at, func.now())}
    session.execute(update(Job).where(Job.id == job_id, Job.status == Status.IN_PROGRESS).values(marked))
    return move(session, job_id, states.CANCEL, Job.status == Status.QUEUED, values=marked)


def _settle(
    session: Session, job_id: str, lease_id: str, transition: Transition, prefill: Prefill, **values: Any
) -> Move | None:
    """End a job under its lease."""
    return move(
        session,
        job_id,
        transition,
        Job.lease_id == lease_id,
        values={**NO_LEASE, **_first(prefill), **values},
    )


def _first(prefill: Prefill) -> dict[str, Any]:
    """Column values that keep what an earlier attempt stored."""
    is_first = Job.first_token_at.is_(None)
    values: dict[str, Any] = {
        "input_tokens": case((is_first, prefill.input_tokens), else_=Job.input_tokens),
        "cached_tokens": case((is_first, prefill.cached_tokens), else_=Job.cached_tokens),
    }
    if prefill.first_token_age_seconds is not None:
        came_at = func.now() - timedelta(seconds=prefill.first_token_age_seconds)
        values["first_token_at"] = func.coalesce(Job.first_token_at, came_at)
    return values
