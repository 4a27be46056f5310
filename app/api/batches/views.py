"""A batch and its lines as clients see them (`shapes` has what that is).

OpenAI sends null for what a batch does not have yet, and so do we.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy.orm import Session

from app.api.batches.shapes import FAULTS_SHOWN, FAULTS_SHOWN_IN_LISTS
from app.batches.counting import Counts, count
from app.batches.queries import INVALID, Faults, Line, faults_of
from app.batches.states import BatchStatus
from app.batches.tables import Batch, BatchFault
from app.jobs.moves import error, usage_of
from config.catalogue import currency


def whole(session: Session, batch: Batch) -> dict[str, Any]:
    """As `BatchView`."""
    return _batch(
        batch,
        count(session, [batch])[batch.id],
        faults_of(session, [batch], FAULTS_SHOWN).get(batch.id, Faults()),
    )


def listed(session: Session, batches: list[Batch]) -> list[dict[str, Any]]:
    counts = count(session, batches)
    faults = faults_of(session, batches, FAULTS_SHOWN_IN_LISTS)
    return [_batch(batch, counts[batch.id], faults.get(batch.id, Faults())) for batch in batches]


def _batch(batch: Batch, counts: Counts, faults: Faults) -> dict[str, Any]:
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model,
        "errors": _errors(faults),
        "input_file_id": batch.input_file_id,
        "completion_window": batch.completion_window,
        "status": batch.status,
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
        **_times(batch),
        "request_counts": {"total": counts.total, "completed": counts.completed, "failed": counts.failed},
        "usage": _usage(batch, counts),
        "metadata": batch.labels,
        "on_invalid": batch.on_invalid,
        "dry_run": batch.dry_run,
        "retry_of": batch.retry_of,
        "webhook_url": batch.webhook_url,
        "price_factor": float(batch.price_factor),
        "running": counts.running,
        "cost": amount(counts.cost),
        "currency": currency(),
        "estimate": batch.estimate,
        "urls": _urls(batch.id),
    }


def _times(batch: Batch) -> dict[str, int | None]:
    ends: Mapping[BatchStatus, str] = {
        BatchStatus.COMPLETED: "completed_at",
        BatchStatus.FAILED: "failed_at",
        BatchStatus.EXPIRED: "expired_at",
        BatchStatus.CANCELLED: "cancelled_at",
    }
    return {
        "created_at": _seconds(batch.created_at),
        "in_progress_at": _seconds(batch.in_progress_at),
        "expires_at": _seconds(batch.expires_at),
        "finalizing_at": _seconds(batch.finalizing_at),
        "cancelling_at": _seconds(batch.cancelling_at),
        **{name: _seconds(batch.finished_at) if batch.status is end else None for end, name in ends.items()},
    }


def _errors(faults: Faults) -> dict[str, Any] | None:
    if not faults.total:
        return None
    return {"object": "list", "data": [_fault(fault) for fault in faults.first], "total": faults.total}


def _fault(fault: BatchFault) -> dict[str, Any]:
    """As `BatchFaultView`."""
    return {
        "code": fault.code,
        "line": fault.line or None,
        "column": fault.column,
        "custom_id": fault.custom_id,
        "message": fault.message,
        "param": fault.param,
    }


def _usage(batch: Batch, counts: Counts) -> dict[str, Any]:
    return {
        "input_tokens": counts.input_tokens,
        "input_tokens_details": {"cached_tokens": counts.cached_tokens},
        "output_tokens": counts.output_tokens,
        "output_tokens_details": {"reasoning_tokens": batch.reasoning_tokens},
        "total_tokens": counts.input_tokens + counts.output_tokens,
    }


def amount(cost: Decimal | None) -> str | None:
    """Without an exponent or zeros at the end, whatever it was multiplied from."""
    if cost is None:
        return None
    said = f"{cost:f}"
    return said.rstrip("0").rstrip(".") if "." in said else said


def _urls(batch_id: str) -> dict[str, str]:
    path = f"/v1/batches/{batch_id}"
    below = ("lines", "output", "errors", "events", "stream", "cancel", "retry")
    return {"self": path, **{name: f"{path}/{name}" for name in below}}


def line(one: Line) -> dict[str, Any]:
    """As `BatchLineView`."""
    if isinstance(one, BatchFault):
        said = {"code": one.code, "message": one.message}
        return _line(one, job_id=None, status=INVALID, usage=None, error=said, incomplete_details=None)
    details = {"reason": one.incomplete_reason} if one.incomplete_reason else None
    return _line(
        one,
        job_id=one.id,
        status=one.status,
        usage=usage_of(one),
        error=error(one),
        incomplete_details=details,
    )


def _line(one: Line, **rest: Any) -> dict[str, Any]:
    return {"object": "batch.line", "line": one.line, "custom_id": one.custom_id, **rest}


def _seconds(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp())
