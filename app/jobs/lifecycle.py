"""The verbs of clients and workers: everything that may happen to a job whose worker lives. Each goes through
`moves.move`; those of a worker hold only under its lease. Functions take the caller's session and never
commit. The loser of a race gets None. What happens to a job whose worker is gone is in `rescue`.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson
from sqlalchemy import Float, Text, bindparam, case, func, or_, select, text, update
from sqlalchemy.orm import Session

from app.ids import PrefixedId, new_id
from app.jobs import log, states
from app.jobs.errors import IdempotencyConflict
from app.jobs.moves import NO_LEASE, Move, move
from app.jobs.states import IncompleteReason, RequeueReason, Status, Transition
from app.jobs.tables import Job, JobEvent
from config.queues import Tier


@dataclass(frozen=True, slots=True)
class Draft:
    """A job as it is submitted: validated, its request as JSON, `request_hash` over what the client sent."""

    account_id: str
    kind: str
    model: str
    tier: Tier
    request: dict[str, Any]
    metadata: dict[str, str]
    request_hash: bytes
    idempotency_key: str | None = None
    expires_after_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Prefill:
    """What reading the prompt took. Only the first attempt's counts are kept: when a later attempt reads the
    output so far again, that is not input. `first_token_age_seconds` is how long ago the first token came.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    first_token_age_seconds: float | None = None


# The job and its first event in one statement, written out: building it from the mapped classes costs a
# submission more than the database does.
_SUBMIT = text("""
    WITH job AS (
        INSERT INTO jobs (id, account_id, kind, model, tier, status, request, metadata, request_hash,
            idempotency_key, expires_at, rung_at)
        VALUES (:id, :account_id, :kind, :model, :tier, :status, CAST(:request AS jsonb),
            CAST(:metadata AS jsonb), :request_hash, :idempotency_key,
            now() + make_interval(secs => :expires_after_seconds), now())
        ON CONFLICT (account_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
        RETURNING id, created_at
    ), event AS (
        INSERT INTO job_events (job_id, seq, first_seq, type, data)
        SELECT id, 1, 1, :event_type, '{"attempt": 0}' FROM job
    )
    SELECT created_at FROM job
""").bindparams(
    bindparam("id", type_=PrefixedId("job")),
    bindparam("account_id", type_=PrefixedId("acct")),
    bindparam("request", type_=Text),
    bindparam("metadata", type_=Text),
    bindparam("expires_after_seconds", type_=Float),
)


def submit(session: Session, draft: Draft) -> tuple[Job, bool]:
    """The job, and whether it is new: then it holds what a submission's answer needs, not every column. Raises
    `IdempotencyConflict` for a used key with another body.
    """
    job = Job(
        id=new_id("job"),
        account_id=draft.account_id,
        kind=draft.kind,
        model=draft.model,
        tier=draft.tier,
        status=Status.QUEUED,
        request=draft.request,
        labels=draft.metadata,
        request_hash=draft.request_hash,
        idempotency_key=draft.idempotency_key,
        attempt=0,
        output_start_seq=0,
        input_tokens=0,
        cached_tokens=0,
        output_tokens=0,
    )
    values = {
        **{name: getattr(job, name) for name in ("id", "account_id", "kind", "model", "request_hash")},
        "tier": draft.tier.value,
        "status": Status.QUEUED.value,
        "request": orjson.dumps(draft.request).decode(),
        "metadata": orjson.dumps(draft.metadata).decode(),
        "idempotency_key": draft.idempotency_key,
        "expires_after_seconds": draft.expires_after_seconds,
        "event_type": Status.QUEUED.event_type,
    }
    # On the connection: the session's own bookkeeping is for mapped rows.
    created_at = session.connection().execute(_SUBMIT, values).scalar()
    if created_at is None:
        return _attach(session, draft), False
    job.created_at = created_at
    return job, True


def _attach(session: Session, draft: Draft) -> Job:
    """The job that an earlier submission with this key made."""
    job = session.scalars(
        select(Job).where(Job.account_id == draft.account_id, Job.idempotency_key == draft.idempotency_key)
    ).one()
    if job.request_hash != draft.request_hash:
        raise IdempotencyConflict(job.id)
    return job


def claim(session: Session, job_id: str, worker_id: str, lease_seconds: float) -> Move | None:
    """Take a queued job, with a fresh lease."""
    total_seconds = Job.request["timeouts"]["total_seconds"].as_float()
    return move(
        session,
        job_id,
        states.CLAIM,
        Job.available_at <= func.now(),
        or_(Job.expires_at.is_(None), Job.expires_at > func.now(), Job.started_at.is_not(None)),
        Job.cancel_requested_at.is_(None),
        values={
            "attempt": Job.attempt + 1,
            "lease_id": str(uuid.uuid4()),
            "worker_id": worker_id,
            "lease_expires_at": func.now() + timedelta(seconds=lease_seconds),
            "started_at": func.coalesce(Job.started_at, func.now()),
            "deadline_at": func.coalesce(
                Job.deadline_at, func.now() + func.make_interval(0, 0, 0, 0, 0, 0, total_seconds)
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
    """Put a job back into the line with all its output, uncharged; one that is to be cancelled ends instead."""
    values = {**NO_LEASE, **_first(prefill)}
    back = move(
        session,
        job_id,
        states.REQUEUE,
        Job.lease_id == lease_id,
        Job.cancel_requested_at.is_(None),
        values={**values, "rung_at": func.now(), "available_at": func.now() + _delay(reason)},
        data={"reason": reason},
    )
    return back or move(session, job_id, states.CANCEL, Job.lease_id == lease_id, values=values)


def _delay(reason: RequeueReason) -> timedelta:
    """An engine that has no room now has none a millisecond later; the janitor rings when the time has come."""
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
