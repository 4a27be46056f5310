"""A job as clients see it. The shapes double as the schemas of the OpenAPI document."""

from typing import Any, Literal

import structlog
from pydantic import BaseModel, Field

from app import clock
from app.api import serving
from app.api.errors import DATABASE_AWAY
from app.jobs.log import Output
from app.jobs.states import Status
from app.jobs.tables import Job
from app.line.estimates import Ahead, Place
from app.line.tables import LineState
from app.line.wording import in_words, standing
from app.surfaces import native
from config.queues import Tier, Window

log = structlog.get_logger(__name__)


class Urls(BaseModel):
    self: str
    events: str
    stream: str = Field(description="WebSocket; the same path over ws:// or wss://.")
    cancel: str


class QueuePlace(BaseModel):
    """Where a waiting job stands; times are Unix seconds, null where nothing foretells them."""

    position: int = Field(description="1 for the job that is expected to start next.")
    estimated_start_at: int | None
    estimated_finish_at: int | None


class JobAccepted(BaseModel):
    id: str
    object: Literal["job"] = "job"
    status: Status
    created_at: int = Field(description="Unix seconds.")
    model: str
    tier: Tier
    urls: Urls
    queue: QueuePlace | None = Field(description="Null unless the job waits; null in lists.")


class JobToolCall(BaseModel):
    id: str
    name: str
    arguments: str = Field(description="JSON as the model wrote it.")


class JobMessage(BaseModel):
    """Output taken apart."""

    content: str
    reasoning: str
    tool_calls: list[JobToolCall]


class JobOutput(BaseModel):
    text: str = Field(description="As the model wrote it, its own markup included.")
    message: JobMessage | None = Field(
        None, description="The same taken apart, where there are tools or the model reasons."
    )
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
    reason: Literal["no_worker", "paused", "retry_delay", "in_line"]
    message: str


class JobLine(BaseModel):
    """Where it stands in its batch."""

    id: str
    line: int
    custom_id: str


class Cost(BaseModel):
    amount: str = Field(description="A decimal number.")
    currency: str


class JobView(JobAccepted):
    kind: str
    session_id: str | None
    completion_window: Window
    due_at: int | None = Field(description="When the completion window ends.")
    price_factor: float = Field(description="What a token costs, times the model's price.")
    attempt: int
    preemptions: int = Field(description="How often it gave its slot to an interactive job.")
    started_at: int | None
    first_token_at: float | None = Field(description="Unix seconds, to the millisecond.")
    finished_at: int | None
    expires_at: int | None
    cancel_requested_at: int | None
    metadata: dict[str, str]
    webhook_url: str | None
    batch: JobLine | None
    output: JobOutput | None = Field(description="What there is so far; null in lists.")
    usage: JobUsage
    cost: Cost | None = Field(description="What it used, at its model's price; null where that has none.")
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


def accepted(job: Job, ahead: Ahead | None) -> dict[str, Any]:
    """The answer to a submission; `ahead` is what the gate saw before it."""
    return {**_reference(job), "queue": _find_queue(job, ahead)}


def _reference(job: Job) -> dict[str, Any]:
    return {**native.reference(job), "urls": _urls(job)}


def _urls(job: Job) -> dict[str, str]:
    path = f"/v1/jobs/{job.id}"
    return {
        "self": path,
        "events": f"{path}/events",
        "stream": f"{path}/stream",
        "cancel": f"{path}/cancel",
    }


def whole(job: Job, output: Output | None = None, last_seq: int | None = None) -> dict[str, Any]:
    """A job with its output, or without it as in lists, where its place would cost too much, too."""
    place = serving.place_of(job) if output is not None else None
    return {
        **native.describe(job, output),
        "urls": _urls(job),
        "queue": queue(place),
        "waiting": _waiting(job, place),
        "last_seq": last_seq,
    }


def queue(place: Place | None) -> dict[str, int | None] | None:
    """As `QueuePlace`."""
    if place is None:
        return None
    return {
        "position": place.position,
        "estimated_start_at": native.seconds(place.estimated_start_at),
        "estimated_finish_at": native.seconds(place.estimated_finish_at),
    }


def _find_queue(job: Job, ahead: Ahead | None) -> dict[str, int | None] | None:
    """The job is stored: a database that goes away now must not make the answer an error."""
    try:
        return queue(serving.place_of(job, ahead))
    except DATABASE_AWAY as error:
        log.warning("place.unknown", job_id=job.id, error=str(error))
        return None


def _waiting(job: Job, place: Place | None) -> dict[str, str] | None:
    if job.status is not Status.QUEUED:
        return None
    if serving.line_of(job.model, job.tier).state is LineState.PAUSED:
        return {"reason": "paused", "message": f"An operator has paused the {job.tier} line of '{job.model}'."}
    if not serving.workers_of(job.model):
        return {"reason": "no_worker", "message": f"No worker serves '{job.model}' right now."}
    if (delay_seconds := (job.available_at - clock.now()).total_seconds()) > 0:
        return {"reason": "retry_delay", "message": f"It is tried again in {in_words(delay_seconds)}."}
    return {"reason": "in_line", "message": "Waiting for a free slot." if place is None else _standing(place)}


def _standing(place: Place) -> str:
    start_at = place.estimated_start_at
    return standing(place.position, (start_at - clock.now()).total_seconds() if start_at else None) + "."
