"""The shapes of a batch and its lines, for the OpenAPI document: OpenAI's object, and what we say besides."""

from typing import Final, Literal

from pydantic import BaseModel, Field

from app.api.views import JobFailure, JobUsage
from app.batches.states import BatchStatus, OnInvalid
from app.jobs.states import Status
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
