"""Running again what failed of a batch that has ended: a new batch, whose lines are copies of those that have
no answer, under their numbers and names. Lines that could not be run stay behind.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import ARRAY, Float, Row, bindparam, select, text
from sqlalchemy.dialects.postgresql import UUID
from sqlalchemy.orm import Session

from app.accounts.limits import Caller
from app.batches import creating, joining, lifecycle
from app.batches.counting import ANSWERED, ENDED
from app.batches.errors import BatchActive, NothingToRetry
from app.batches.estimating import Load, estimate, total
from app.batches.states import BatchStatus
from app.batches.tables import Batch
from app.gate.admission import BulkEntry
from app.ids import PrefixedId, new_id, to_uuid
from app.jobs.errors import ModelNotFound
from app.jobs.tables import Job
from config.catalogue import catalogue, currency, price_factors
from config.queues import Tier

Lines = Sequence[Row[str, str, int, int]]

_FAILED: Final = select(Job.id, Job.model, Job.prompt_tokens, Job.reserved_tokens).where(ENDED, ~ANSWERED)


def retry(session: Session, caller: Caller, batch: Batch, key: str | None) -> Batch:
    """The new batch, or the one that this Idempotency-Key made. Raises `BatchActive`, `NothingToRetry`,
    `ModelNotFound`, `BatchIdempotencyConflict`, or `Refused` at the gate.
    """
    request_hash = hashlib.sha256(f"retry {batch.id}".encode()).digest()
    earlier = _find_earlier(session, batch, key, request_hash)
    if earlier is not None:
        return earlier
    if batch.finished_at is None:
        raise BatchActive(batch.id, batch.status)
    lines = session.execute(_FAILED.where(Job.batch_id == batch.id).order_by(Job.line)).all()
    if not lines:
        raise NothingToRetry(batch.id)
    new = creating.insert_batch(session, _values(caller, batch, key, request_hash))
    if new is None:
        earlier = _find_earlier(session, batch, key, request_hash)
        assert earlier is not None
        return earlier
    loads = _loads(lines)
    _join(caller, new, loads)
    return _start(session, new, lines, loads)


def _find_earlier(session: Session, batch: Batch, key: str | None, request_hash: bytes) -> Batch | None:
    return None if key is None else creating.find_earlier(session, batch.account_id, key, request_hash)


def _values(caller: Caller, batch: Batch, key: str | None, request_hash: bytes) -> dict[str, Any]:
    offered = price_factors()[Tier.BATCH]
    same = {name: getattr(batch, name) for name in _SAME}
    return {
        **same,
        "id": new_id("batch"),
        "key_id": caller.key_id,
        "status": BatchStatus.VALIDATING,
        "price_factor": offered.get(batch.completion_window, batch.price_factor),
        "retry_of": batch.id,
        "idempotency_key": key,
        "request_hash": request_hash,
    }


_SAME: Final = (
    "account_id", "endpoint", "input_file_id", "input_digest", "completion_window", "on_invalid", "labels",
    "webhook_url", "output_expires_after_seconds",
)  # fmt: skip


def _loads(lines: Lines) -> dict[str, Load]:
    """By model. Raises `ModelNotFound` for one that is gone."""
    loads: dict[str, Load] = defaultdict(Load)
    for line in lines:
        if line.model not in catalogue():
            raise ModelNotFound(line.model, list(catalogue()))
        loads[line.model].add(line.prompt_tokens, line.reserved_tokens)
    return loads


def _join(caller: Caller, batch: Batch, loads: Mapping[str, Load]) -> None:
    """Raises `Refused`. Where what follows fails, the line is counted anew."""
    window, limits = batch.completion_window, caller.limits[Tier.BATCH]
    entries = [
        BulkEntry(batch.account_id, model, window, load.jobs, load.reserved_tokens, limits)
        for model, load in loads.items()
    ]
    if refused := joining.join(batch.id, entries):
        raise refused


def _start(session: Session, batch: Batch, lines: Lines, loads: Mapping[str, Load]) -> Batch:
    lifecycle.append_event(session, batch.id, BatchStatus.VALIDATING.event_type, {})
    session.execute(_UNHURRIED)
    values = {
        "batch_id": batch.id,
        "key_id": batch.key_id,
        "price_factor": batch.price_factor,
        "window_seconds": batch.completion_window.seconds,
        "old_ids": [to_uuid("job", line.id) for line in lines],
        "new_ids": [to_uuid("job", new_id("job")) for _ in lines],
    }
    session.connection().execute(_COPY, values)
    source, target = BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS
    started = lifecycle.advance(session, batch.id, {source}, target, _findings(loads, batch.price_factor))
    assert started is not None
    return started


def _findings(loads: Mapping[str, Load], price_factor: Decimal) -> dict[str, Any]:
    whole = total(loads)
    prices = {model: catalogue()[model].price for model in loads}
    return {
        "total": whole.jobs,
        "model": next(iter(loads)) if len(loads) == 1 else None,
        "prompt_tokens": whole.prompt_tokens,
        "reserved_tokens": whole.reserved_tokens,
        "estimate": estimate(loads, 0, prices, price_factor, currency()),
    }


_UNHURRIED: Final = text("SET LOCAL statement_timeout = '5min'")
_COPY: Final = text("""
    WITH job AS (
        INSERT INTO jobs (id, account_id, key_id, kind, model, tier, status, request, metadata, request_hash,
            session_id, completion_window, price_factor, prompt_tokens, reserved_tokens, is_long, surface, echo,
            is_stored, webhook_url, batch_id, line, custom_id, due_at, expires_at, order_at)
        SELECT chosen.new_id, job.account_id, :key_id, job.kind, job.model, job.tier, 'queued', job.request,
            job.metadata, job.request_hash, job.session_id, job.completion_window, :price_factor,
            job.prompt_tokens, job.reserved_tokens, job.is_long, job.surface, job.echo, job.is_stored,
            job.webhook_url, :batch_id, job.line, job.custom_id, due.at, due.at, coalesce(due.at, now())
        FROM unnest(:old_ids, :new_ids) AS chosen(old_id, new_id) JOIN jobs job ON job.id = chosen.old_id,
            (SELECT now() + make_interval(secs => :window_seconds) AS at) due
        RETURNING id
    )
    INSERT INTO job_events (job_id, seq, first_seq, type, data)
    SELECT id, 1, 1, 'job.queued', '{"attempt": 0}' FROM job
""").bindparams(
    bindparam("batch_id", type_=PrefixedId("batch")),
    bindparam("key_id", type_=PrefixedId("key")),
    bindparam("window_seconds", type_=Float),
    bindparam("old_ids", type_=ARRAY(UUID)),
    bindparam("new_ids", type_=ARRAY(UUID)),
)
