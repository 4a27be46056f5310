"""A batch and its lines as clients see them: OpenAI's object, and what we say besides. The shapes double as the
schemas of the OpenAPI document.

OpenAI sends null for what a batch does not have yet, and so do we.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Literal

from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from app.api.views import JobFailure, JobUsage
from app.batches.counting import Counts, count
from app.batches.queries import INVALID, Faults, Line, faults_of
from app.batches.states import BatchStatus, OnInvalid
from app.batches.tables import Batch, BatchFault
from app.jobs.moves import error, usage_of
from app.jobs.states import Status
from config.catalogue import currency
from config.queues import Window

FAULTS_SHOWN: Final = 1_000
FAULTS_SHOWN_IN_LISTS: Final = 10


class BatchFaultView(BaseModel):
    """What is wrong with a line of the input, or with the file."""

    code: str
    line: int | None = Field(description="From 1; null for the whole file.")
    column: int | None = Field(description="From 1, in characters, where one can be named.")
    custom_id: str | None
    message: str
    param: str | None = Field(description="The parameter, from the line's own keys on: `body.temperature`.")


class BatchFaults(BaseModel):
    object: Literal["list"] = "list"
    data: list[BatchFaultView] = Field(
        description=f"The first {FAULTS_SHOWN:,}; in lists, the first {FAULTS_SHOWN_IN_LISTS}."
    )
    total: int


class BatchCounts(BaseModel):
    """Of lines. They are true at any time: what has not ended is in neither of the two."""

    total: int
    completed: int
    failed: int = Field(description="Failed, cancelled, expired, or not to be run at all.")


class BatchCachedDetails(BaseModel):
    cached_tokens: int


class BatchReasoningDetails(BaseModel):
    reasoning_tokens: int


class BatchUsage(BaseModel):
    """Of all lines so far."""

    input_tokens: int
    input_tokens_details: BatchCachedDetails
    output_tokens: int
    output_tokens_details: BatchReasoningDetails
    total_tokens: int


class BatchEstimate(BaseModel):
    """What a batch may use, once its lines are checked. Amounts are decimals; null without a price."""

    lines: int
    invalid: int
    input_tokens: int
    max_output_tokens: int
    currency: str
    price_factor: str
    cost_input: str | None
    cost_max: str | None


class BatchUrls(BaseModel):
    self: str
    lines: str
    output: str = Field(description="The output file, also while the batch runs.")
    errors: str = Field(description="The error file, also while the batch runs.")
    events: str
    stream: str = Field(description="WebSocket; the same path over ws:// or wss://.")
    cancel: str
    retry: str


class BatchView(BaseModel):
    """OpenAI's batch, times in Unix seconds; from `on_invalid` on it is ours."""

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    model: str | None = Field(description="Where all lines name the same.")
    errors: BatchFaults | None
    input_file_id: str
    completion_window: Window
    status: BatchStatus
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int | None = Field(description="The end of its window.")
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: BatchCounts
    usage: BatchUsage
    metadata: dict[str, str]

    on_invalid: OnInvalid
    dry_run: bool
    retry_of: str | None = Field(description="The batch whose failed lines it runs again.")
    webhook_url: str | None
    price_factor: float = Field(description="What a token costs, times the model's price.")
    running: int = Field(description="Lines that are in progress.")
    cost: str | None = Field(description="So far, as a decimal; null without a price.")
    currency: str
    estimate: BatchEstimate | None
    urls: BatchUrls


class BatchList(BaseModel):
    object: Literal["list"] = "list"
    data: list[BatchView]
    first_id: str | None
    last_id: str | None
    has_more: bool


class BatchLineView(BaseModel):
    """A line of a batch's input: the job that it became, or what is wrong with it."""

    object: Literal["batch.line"] = "batch.line"
    line: int
    custom_id: str | None
    job_id: str | None = Field(description="See `GET /v1/jobs/{job_id}`; null for an invalid line.")
    status: Status | Literal["invalid"]
    usage: JobUsage | None = Field(description="Counted when it ends; null for an invalid line.")
    error: JobFailure | None
    incomplete_details: dict[str, str] | None


class BatchLineList(BaseModel):
    object: Literal["list"] = "list"
    data: list[BatchLineView]
    next_after: int = Field(description="`after` of the next page.")
    has_more: bool


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
