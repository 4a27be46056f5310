"""A job as clients see it. The shapes double as the schemas of the OpenAPI document."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from app.api import serving
from app.jobs.log import Output
from app.jobs.moves import error, incomplete_details, usage_of
from app.jobs.states import Status
from app.jobs.tables import Job
from config.queues import Tier


class Urls(BaseModel):
    self: str
    events: str
    stream: str = Field(description="WebSocket; the same path over ws:// or wss://.")
    cancel: str


class JobAccepted(BaseModel):
    id: str
    object: Literal["job"] = "job"
    status: Status
    created_at: int = Field(description="Unix seconds.")
    model: str
    tier: Tier
    urls: Urls


class JobOutput(BaseModel):
    text: str
    logprobs: list[dict[str, Any]] | None = Field(None, description="One entry a token, where asked for.")


class CachedDetails(BaseModel):
    cached_tokens: int


class JobUsage(BaseModel):
    input_tokens: int
    input_tokens_details: CachedDetails
    output_tokens: int
    total_tokens: int


class JobFailure(BaseModel):
    code: str
    message: str


class IncompleteDetails(BaseModel):
    reason: str


class Waiting(BaseModel):
    reason: Literal["no_worker", "in_line"]
    message: str


class JobView(JobAccepted):
    kind: str
    attempt: int
    started_at: int | None
    first_token_at: float | None = Field(description="Unix seconds, to the millisecond.")
    finished_at: int | None
    expires_at: int | None
    cancel_requested_at: int | None
    metadata: dict[str, str]
    output: JobOutput | None = Field(description="What there is so far; null in lists.")
    usage: JobUsage
    error: JobFailure | None
    incomplete_details: IncompleteDetails | None
    waiting: Waiting | None = Field(description="Why a queued job waits.")
    last_seq: int | None = Field(description="The cursor of its log; null in lists.")


class JobList(BaseModel):
    object: Literal["list"] = "list"
    data: list[JobView]
    first_id: str | None
    last_id: str | None
    has_more: bool


class JobDeleted(BaseModel):
    id: str
    object: Literal["job.deleted"] = "job.deleted"
    deleted: Literal[True] = True


def accepted(job: Job) -> dict[str, Any]:
    path = f"/v1/jobs/{job.id}"
    return {
        "id": job.id,
        "object": "job",
        "status": job.status,
        "created_at": _seconds(job.created_at),
        "model": job.model,
        "tier": job.tier,
        "urls": {
            "self": path,
            "events": f"{path}/events",
            "stream": f"{path}/stream",
            "cancel": f"{path}/cancel",
        },
    }


def whole(job: Job, output: Output | None = None, last_seq: int | None = None) -> dict[str, Any]:
    return {
        **accepted(job),
        "kind": job.kind,
        "attempt": job.attempt,
        "started_at": _seconds(job.started_at),
        "first_token_at": round(job.first_token_at.timestamp(), 3) if job.first_token_at else None,
        "finished_at": _seconds(job.finished_at),
        "expires_at": _seconds(job.expires_at),
        "cancel_requested_at": _seconds(job.cancel_requested_at),
        "metadata": job.labels,
        "output": None if output is None else _output(job, output),
        "usage": _usage(job, output),
        "error": error(job),
        "incomplete_details": incomplete_details(job),
        "waiting": _waiting(job),
        "last_seq": last_seq,
    }


def _output(job: Job, output: Output) -> dict[str, Any]:
    asked = job.request.get("logprobs") is not None
    return {"text": output.text, "logprobs": list(output.logprobs) if asked else None}


def _usage(job: Job, output: Output | None) -> dict[str, Any]:
    """A running job's output counts as far as it is stored."""
    counted = usage_of(job)
    if output is not None and not job.status.is_terminal:
        counted["output_tokens"] = len(output.token_ids)
        counted["total_tokens"] = job.input_tokens + len(output.token_ids)
    return counted


def _waiting(job: Job) -> dict[str, str] | None:
    if job.status is not Status.QUEUED:
        return None
    if not serving.workers_of(job.model):
        return {"reason": "no_worker", "message": f"No worker serves '{job.model}' right now."}
    return {"reason": "in_line", "message": "Waiting for a free slot."}


def _seconds(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp())
