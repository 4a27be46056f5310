"""The verbs of clients and workers: everything that may happen to a job whose worker lives. Each goes through
`moves.move`; those of a worker hold only under its lease. Functions take the caller's session and never
commit. The loser of a race gets None. What happens to a job whose worker is gone is in `rescue`.
"""

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import orjson
from sqlalchemy import Float, Text, and_, bindparam, case, func, or_, select, text, update
from sqlalchemy.orm import Session

from app.ids import PrefixedId, new_id
from app.jobs import log, states, usage
from app.jobs.errors import IdempotencyConflict
from app.jobs.moves import NO_LEASE, UNPLACED, Move, move
from app.jobs.states import IncompleteReason, RequeueReason, Status, Transition
from app.jobs.tables import Job, JobEvent
from config.queues import Tier, Window
from config.settings import settings


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
    job_id: str = field(default_factory=lambda: new_id("job"))
    key_id: str | None = None
    idempotency_key: str | None = None
    expires_after_seconds: int | None = None
    session_id: str | None = None
    completion_window: Window = Window.SOONEST
    price_factor: Decimal = Decimal(1)
    prompt_tokens: int = 0
    reserved_tokens: int = 0
    is_long: bool = False
    estimated_wait_seconds: float | None = None
    placed_on: str | None = None  # the worker that will be rung for it


@dataclass(frozen=True, slots=True)
class Prefill:
    """What reading the prompt took. Only the first attempt's counts are kept: when a later attempt reads the
    output so far again, that is not input. `first_token_age_seconds` is how long ago the first token came.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    first_token_age_seconds: float | None = None


# The job and its first event in one statement, written out: building it from the mapped classes costs a
# submission more than the database does. A job with a completion window stands in the line where its window
# ends; one that follows another of its session, where that one stood.
_SUBMIT = text("""
    WITH job AS (
        INSERT INTO jobs (id, account_id, key_id, kind, model, tier, status, request, metadata, request_hash,
            idempotency_key, session_id, completion_window, price_factor, prompt_tokens, reserved_tokens,
            is_long, placed_on, rung_at, estimated_start_at, due_at, expires_at, order_at)
        SELECT :id, :account_id, :key_id, :kind, :model, :tier, :status, CAST(:request AS jsonb),
            CAST(:metadata AS jsonb), :request_hash, :idempotency_key, :session_id, :completion_window,
            :price_factor, :prompt_tokens, :reserved_tokens, :is_long, :placed_on,
            CASE WHEN :placed_on IS NOT NULL THEN now() END,
            now() + make_interval(secs => :estimated_wait_seconds), times.due_at,
            least(now() + make_interval(secs => :expires_after_seconds), times.due_at),
            coalesce(
                CASE WHEN :session_id IS NOT NULL THEN (
                    SELECT min(earlier.order_at) FROM jobs earlier
                    WHERE earlier.account_id = :account_id AND earlier.session_id = :session_id
                        AND earlier.model = :model AND earlier.tier = :tier
                        AND coalesce(earlier.finished_at, now())
                            > now() - make_interval(secs => :session_seconds)
                ) END,
                times.due_at, now())
        FROM (SELECT now() + make_interval(secs => :window_seconds) AS due_at) times
        ON CONFLICT (account_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
        RETURNING id, created_at, order_at, due_at
    ), event AS (
        INSERT INTO job_events (job_id, seq, first_seq, type, data)
        SELECT id, 1, 1, :event_type, '{"attempt": 0}' FROM job
    )
    SELECT created_at, order_at, due_at FROM job
""").bindparams(
    bindparam("id", type_=PrefixedId("job")),
    bindparam("account_id", type_=PrefixedId("acct")),
    bindparam("key_id", type_=PrefixedId("key")),
    *(
        bindparam(name, type_=Text)
        for name in ("request", "metadata", "idempotency_key", "session_id", "model", "tier", "placed_on")
    ),
    *(
        bindparam(name, type_=Float)
        for name in ("expires_after_seconds", "window_seconds", "session_seconds", "estimated_wait_seconds")
    ),
)


def submit(session: Session, draft: Draft) -> tuple[Job, bool]:
    """The job, and whether it is new: then it holds what a submission's answer needs, not every column. Raises
    `IdempotencyConflict` for a used key with another body.
    """
    stored = {name: getattr(draft, name) for name in _STORED_AS_GIVEN}
    values = {
        **stored,
        "id": draft.job_id,
        "tier": draft.tier.value,
        "completion_window": draft.completion_window.value,
        "status": Status.QUEUED.value,
        "request": orjson.dumps(draft.request).decode(),
        "metadata": orjson.dumps(draft.metadata).decode(),
        "expires_after_seconds": draft.expires_after_seconds,
        "estimated_wait_seconds": draft.estimated_wait_seconds,
        "window_seconds": draft.completion_window.seconds,
        "session_seconds": settings().session_seconds,
        "event_type": Status.QUEUED.event_type,
    }
    # On the connection: the session's own bookkeeping is for mapped rows.
    times = session.connection().execute(_SUBMIT, values).one_or_none()
    if times is None:
        return _attach(session, draft), False
    job = Job(
        **stored,
        id=draft.job_id,
        tier=draft.tier,
        status=Status.QUEUED,
        request=draft.request,
        labels=draft.metadata,
        completion_window=draft.completion_window,
        created_at=times.created_at,
        order_at=times.order_at,
        due_at=times.due_at,
        available_at=times.created_at,
        attempt=0,
        preemptions=0,
        output_start_seq=0,
        input_tokens=0,
        cached_tokens=0,
        output_tokens=0,
    )
    return job, True


_STORED_AS_GIVEN = (
    "account_id", "key_id", "kind", "model", "request_hash", "idempotency_key", "session_id", "price_factor",
    "prompt_tokens", "reserved_tokens", "is_long", "placed_on",
)  # fmt: skip


def find_submitted(session: Session, account_id: str, idempotency_key: str, request_hash: bytes) -> Job | None:
    """The job that an earlier submission with this key made. Raises `IdempotencyConflict` if its body was
    another.
    """
    job = session.scalar(
        select(Job).where(Job.account_id == account_id, Job.idempotency_key == idempotency_key)
    )
    if job is not None and job.request_hash != request_hash:
        raise IdempotencyConflict(job.id)
    return job


def _attach(session: Session, draft: Draft) -> Job:
    assert draft.idempotency_key is not None
    job = find_submitted(session, draft.account_id, draft.idempotency_key, draft.request_hash)
    assert job is not None
    return job


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
