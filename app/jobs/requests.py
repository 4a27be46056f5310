"""What a client may ask for: the body of a job, with every limit that does not need the database. The worker
reads the same shape back from the jobs table.
"""

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from config.queues import Tier, Window

MAX_INPUT_CHARS = 1_000_000
MAX_MESSAGES = 1_000
MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 256
MAX_SCHEMA_BYTES = 32_768
MAX_SCHEMA_DEPTH = 16
MAX_METADATA_PAIRS = 16
DAY_SECONDS = 86_400

StopString = Annotated[str, StringConstraints(min_length=1, max_length=MAX_STOP_CHARS)]
MetadataKey = Annotated[str, StringConstraints(min_length=1, max_length=64)]
SessionId = Annotated[str, StringConstraints(min_length=1, max_length=128)]
MetadataValue = Annotated[str, StringConstraints(max_length=512)]


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TextPart(Shape):
    type: Literal["text", "input_text", "output_text"] = "text"
    text: str


class Message(Shape):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class PlainText(Shape):
    type: Literal["text"] = "text"


class JsonObject(Shape):
    type: Literal["json_object"]


class JsonSchema(Shape):
    type: Literal["json_schema"]
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")] = "output"
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool = True
    description: str | None = Field(None, max_length=1024)

    @field_validator("schema_")
    @classmethod
    def _bounded(cls, schema: dict[str, Any]) -> dict[str, Any]:
        if (size := len(json.dumps(schema))) > MAX_SCHEMA_BYTES:
            raise ValueError(f"is {size} bytes; the limit is {MAX_SCHEMA_BYTES}")
        if (depth := _depth(schema)) > MAX_SCHEMA_DEPTH:
            raise ValueError(f"is {depth} levels deep; the limit is {MAX_SCHEMA_DEPTH}")
        return schema


class TextOptions(Shape):
    format: Annotated[PlainText | JsonObject | JsonSchema, Field(discriminator="type")] = PlainText()


class Timeouts(Shape):
    """Both count from the moment a worker first takes the job; waiting in the line is not counted."""

    first_token_seconds: float | None = Field(None, gt=0, le=DAY_SECONDS)
    total_seconds: float | None = Field(None, gt=0, le=7 * DAY_SECONDS)


class JobRequest(Shape):
    """The body of `POST /v1/jobs`."""

    kind: Literal["generation"] = "generation"
    model: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    input: str | Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
    instructions: str | None = Field(None, max_length=MAX_INPUT_CHARS)
    tier: Tier | None = Field(
        None, description="Without one: interactive, or batch where a completion window is given."
    )
    completion_window: Window | None = Field(
        None, description="Without one: soonest for interactive jobs, 24h for batch jobs."
    )
    session_id: SessionId | None = Field(
        None, description="A job that follows another of its session keeps that one's place in the line."
    )

    max_output_tokens: int | None = Field(None, ge=1, le=1_000_000)
    min_output_tokens: int = Field(0, ge=0, le=1_000_000)
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0, le=1_000_000)
    min_p: float = Field(0.0, ge=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS)] = []
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    repetition_penalty: float = Field(1.0, gt=0, le=10)
    logprobs: int | None = Field(None, ge=0, le=20)
    ignore_eos: bool = False
    text: TextOptions = TextOptions()

    metadata: Annotated[dict[MetadataKey, MetadataValue], Field(max_length=MAX_METADATA_PAIRS)] = {}
    timeouts: Timeouts = Timeouts()
    expires_after_seconds: int | None = Field(None, ge=1, le=30 * DAY_SECONDS)

    @field_validator("stop", mode="before")
    @classmethod
    def _one_or_many(cls, stop: Any) -> Any:
        return [stop] if isinstance(stop, str) else [] if stop is None else stop

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.max_output_tokens is not None and self.min_output_tokens > self.max_output_tokens:
            raise ValueError("min_output_tokens is larger than max_output_tokens")
        if (size := self.input_chars) > MAX_INPUT_CHARS:
            raise ValueError(f"input and instructions are {size} characters; the limit is {MAX_INPUT_CHARS}")
        if size == 0:
            raise ValueError("input is empty")
        if self.effective_tier is Tier.INTERACTIVE and self.effective_window is not Window.SOONEST:
            raise ValueError("completion_window of an interactive job can only be soonest")
        if not isinstance(self.text.format, PlainText) and self.stop:
            raise ValueError("stop cannot be combined with a structured text.format")
        return self

    @property
    def effective_tier(self) -> Tier:
        if self.tier is not None:
            return self.tier
        return Tier.INTERACTIVE if self.completion_window in {None, Window.SOONEST} else Tier.BATCH

    @property
    def effective_window(self) -> Window:
        if self.completion_window is not None:
            return self.completion_window
        return Window.SOONEST if self.effective_tier is Tier.INTERACTIVE else Window.ONE_DAY

    @property
    def input_chars(self) -> int:
        texts = [self.input] if isinstance(self.input, str) else [message.text for message in self.input]
        return sum(len(text) for text in texts) + len(self.instructions or "")

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation as chat messages, instructions first."""
        spoken = (
            [{"role": "user", "content": self.input}]
            if isinstance(self.input, str)
            else [{"role": _ROLES.get(m.role, m.role), "content": m.text} for m in self.input]
        )
        lead = [{"role": "system", "content": self.instructions}] if self.instructions else []
        return lead + spoken


# Chat templates know `system` alone; OpenAI renamed it.
_ROLES = {"developer": "system"}


def _depth(value: Any) -> int:
    """Nesting of a JSON value, without recursion: the value is a client's."""
    deepest, level = 0, [value]
    while level:
        deepest += 1
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
    return deepest
