"""A job joins the line: stored with its first event, or attached to where its Idempotency-Key was used before.
Functions take the caller's session and never commit.
"""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import orjson
from sqlalchemy import Float, Text, bindparam, select, text
from sqlalchemy.orm import Session

from app.ids import PrefixedId, new_id
from app.jobs.errors import IdempotencyConflict
from app.jobs.states import Status
from app.jobs.tables import Job, Surface
from config.queues import Tier, Window
from config.settings import settings


@dataclass(frozen=True, slots=True)
class Spoken:
    """How a job is spoken of: the API it came through, what that one echoes, and whether it is kept."""

    surface: Surface = Surface.JOBS
    echo: dict[str, Any] | None = None
    is_stored: bool = True


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
    webhook_url: str | None = None
    spoken: Spoken = Spoken()


# The job and its first event in one statement, written out: building it from the mapped classes costs a
# submission more than the database does. A job with a completion window stands in the line where its window
# ends; one that follows another of its session, where that one stood.
_SUBMIT = text("""
    WITH job AS (
        INSERT INTO jobs (id, account_id, key_id, kind, model, tier, status, request, metadata, request_hash,
            idempotency_key, session_id, completion_window, price_factor, prompt_tokens, reserved_tokens,
            is_long, surface, echo, is_stored, webhook_url,
            placed_on, rung_at, estimated_start_at, due_at, expires_at, order_at)
        SELECT :id, :account_id, :key_id, :kind, :model, :tier, :status, CAST(:request AS jsonb),
            CAST(:metadata AS jsonb), :request_hash, :idempotency_key, :session_id, :completion_window,
            :price_factor, :prompt_tokens, :reserved_tokens, :is_long, :surface, CAST(:echo AS jsonb),
            :is_stored, :webhook_url, :placed_on,
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
        RETURNING id, account_id, created_at, order_at, due_at
    ), event AS (
        INSERT INTO job_events (job_id, seq, first_seq, type, data, is_due)
        SELECT job.id, 1, 1, :event_type, '{"attempt": 0}', :event_type = ANY(accounts.listens_to)
        FROM job JOIN accounts ON accounts.id = job.account_id
    )
    SELECT created_at, order_at, due_at FROM job
""").bindparams(
    bindparam("id", type_=PrefixedId("job")),
    bindparam("account_id", type_=PrefixedId("acct")),
    bindparam("key_id", type_=PrefixedId("key")),
    *(
        bindparam(name, type_=Text)
        for name in (
            "request",
            "metadata",
            "idempotency_key",
            "session_id",
            "model",
            "tier",
            "placed_on",
            "surface",
            "echo",
            "webhook_url",
            "event_type",
        )
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
        "surface": draft.spoken.surface.value,
        "echo": None if draft.spoken.echo is None else orjson.dumps(draft.spoken.echo).decode(),
        "is_stored": draft.spoken.is_stored,
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
        surface=draft.spoken.surface,
        echo=draft.spoken.echo,
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
    "prompt_tokens", "reserved_tokens", "is_long", "placed_on", "webhook_url",
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
