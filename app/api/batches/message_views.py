"""A message batch as Anthropic's clients see it. The shapes double as the schemas of the OpenAPI document."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from app.anthropic.ids import message_batch_id
from app.batches import messages
from app.batches.messages import Tally
from app.batches.states import BatchStatus
from app.batches.tables import Batch

A_DAY: Final = timedelta(days=1)


class MessageBatchRequest(BaseModel):
    custom_id: str = Field(description="1 to 64 letters, digits, `_` or `-`; another for each request.")
    params: dict[str, Any] = Field(description="Of Anthropic's Messages: `model`, `max_tokens`, `messages`, …")


class CreateMessageBatch(BaseModel):
    requests: list[MessageBatchRequest]


class MessageBatchCounts(BaseModel):
    """Of requests. Anthropic's stand still until all have ended; ours are true at any time."""

    processing: int
    succeeded: int
    errored: int
    canceled: int
    expired: int


class MessageBatchView(BaseModel):
    """Anthropic's message batch."""

    id: str = Field(description="The same digits as the batch's, see `GET /v1/batches/{batch_id}`.")
    type: Literal["message_batch"] = "message_batch"
    processing_status: Literal["in_progress", "canceling", "ended"]
    request_counts: MessageBatchCounts
    created_at: str
    expires_at: str
    ended_at: str | None
    cancel_initiated_at: str | None
    archived_at: str | None
    results_url: str | None


class MessageBatchList(BaseModel):
    data: list[MessageBatchView]
    has_more: bool
    first_id: str | None
    last_id: str | None


class MessageBatchDeleted(BaseModel):
    id: str
    type: Literal["message_batch_deleted"] = "message_batch_deleted"


def view(batch: Batch, tally: Tally, root: str) -> dict[str, Any]:
    """As `MessageBatchView`; `root` is the URL of all message batches."""
    name, archived_at = message_batch_id(batch.id), messages.archived_at(batch)
    has_results = batch.finished_at is not None and archived_at is None
    return {
        "id": name,
        "type": "message_batch",
        "processing_status": _status(batch),
        "request_counts": asdict(tally),
        "created_at": _time(batch.created_at),
        "expires_at": _time(batch.expires_at or batch.created_at + A_DAY),
        "ended_at": _time(batch.finished_at),
        "cancel_initiated_at": _time(_cancelled_at(batch)),
        "archived_at": _time(archived_at),
        "results_url": f"{root}/{name}/results" if has_results else None,
    }


def _status(batch: Batch) -> str:
    if batch.finished_at is not None:
        return "ended"
    return "in_progress" if batch.cancelling_at is None else "canceling"


def _cancelled_at(batch: Batch) -> datetime | None:
    """One that nothing of had run was cancelled in one step."""
    return batch.cancelling_at or (batch.finished_at if batch.status is BatchStatus.CANCELLED else None)


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()
