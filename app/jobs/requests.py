"""What a client may ask for: the body of a job, with every limit that does not need the database. The worker
reads the same shape back from the jobs table.
"""

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from app.jobs.prompts import Prompt, ToolUse
from app.jobs.schemas import check_schema
from app.jobs.tools import MAX_TOOL_CALLS, MAX_TOOLS, CallId, FunctionTool, NamedFunction, ToolCall, ToolChoice
from config.queues import Tier, Window

MAX_INPUT_CHARS = 1_000_000
MAX_MESSAGES = 1_000
MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 256
MAX_METADATA_PAIRS = 16
MAX_LOGIT_BIAS = 300
DAY_SECONDS = 86_400

StopString = Annotated[str, StringConstraints(min_length=1, max_length=MAX_STOP_CHARS)]
MetadataKey = Annotated[str, StringConstraints(min_length=1, max_length=64)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
SessionId = Annotated[str, StringConstraints(min_length=1, max_length=128)]
WebhookUrl = Annotated[str, StringConstraints(min_length=1, max_length=2_048)]
MetadataValue = Annotated[str, StringConstraints(max_length=512)]


class Shape(BaseModel):
    """Lists and objects get their defaults from factories: a default value is copied deeply each time."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TextPart(Shape):
    type: Literal["text", "input_text", "output_text"] = "text"
    text: str


class Message(Shape):
    """An assistant's may ask for `tool_calls`; a tool's answers the one that `tool_call_id` names."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] = ""
    tool_calls: list[ToolCall] = Field(default_factory=list, max_length=MAX_TOOL_CALLS)
    tool_call_id: CallId | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.tool_calls and self.role != "assistant":
            raise ValueError("tool_calls are an assistant's")
        if (self.tool_call_id is None) == (self.role == "tool"):
            raise ValueError("tool_call_id belongs to a message of the role tool, and to no other")
        return self

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)

    @property
    def chars(self) -> int:
        return len(self.text) + sum(len(call.name) + len(call.arguments) for call in self.tool_calls)


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
        return check_schema(schema)


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
    prompt_format: Literal["chat", "raw"] = Field(
        "chat", description="raw: the model reads `input` as it stands, without its chat template."
    )
    tools: list[FunctionTool] = Field(default_factory=list, max_length=MAX_TOOLS)
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
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
    stop: list[StopString] = Field(default_factory=list, max_length=MAX_STOP_STRINGS)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    repetition_penalty: float = Field(1.0, gt=0, le=10)
    logit_bias: dict[TokenId, Annotated[float, Field(ge=-100, le=100)]] = Field(
        default_factory=dict, max_length=MAX_LOGIT_BIAS
    )
    logprobs: int | None = Field(None, ge=0, le=20)
    ignore_eos: bool = False
    text: TextOptions = TextOptions()

    metadata: dict[MetadataKey, MetadataValue] = Field(default_factory=dict, max_length=MAX_METADATA_PAIRS)
    timeouts: Timeouts = Timeouts()
    expires_after_seconds: int | None = Field(None, ge=1, le=30 * DAY_SECONDS)
    webhook_url: WebhookUrl | None = Field(
        None, description="Told how the job ended, signed with the account's secret; no webhook of its start."
    )

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
        if self.prompt_format == "raw" and (not isinstance(self.input, str) or self.instructions or self.tools):
            raise ValueError("prompt_format raw takes an input that is a string, no instructions and no tools")
        self._check_tools()
        return self

    def _check_tools(self) -> None:
        names = [tool.name for tool in self.tools]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"tools has two functions named '{twice}'")
        if isinstance(self.tool_choice, NamedFunction) and self.tool_choice.name not in names:
            raise ValueError(f"tool_choice names '{self.tool_choice.name}', which is not among tools")
        if self.tool_choice == "required" and not names:
            raise ValueError("tool_choice is required, but there are no tools")
        use = self.tool_use
        if use and use.is_forced and (self.stop or not isinstance(self.text.format, PlainText)):
            raise ValueError("tool_choice that forces a call cannot be combined with stop or text.format")

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
        chars = [len(self.input)] if isinstance(self.input, str) else [message.chars for message in self.input]
        tools = sum(len(json.dumps(tool.for_template)) for tool in self.tools)
        return sum(chars) + len(self.instructions or "") + tools

    @property
    def tool_use(self) -> ToolUse | None:
        """What calls the model may make; None where it may make none."""
        if not self.tools or self.tool_choice == "none":
            return None
        is_named = isinstance(self.tool_choice, NamedFunction)
        return ToolUse(
            tuple(tool.for_template for tool in self.tools),
            self.tool_choice.name if isinstance(self.tool_choice, NamedFunction) else self.tool_choice,
            is_named=is_named,
            is_parallel=self.parallel_tool_calls,
            strict=frozenset(tool.name for tool in self.tools if tool.strict),
        )

    @property
    def prompt(self) -> Prompt:
        """What the model reads: instructions first, the tools beside it."""
        if self.prompt_format == "raw" and isinstance(self.input, str):
            return Prompt(raw=self.input)
        said = [Message(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        lead = [{"role": "system", "content": self.instructions}] if self.instructions else []
        use = self.tool_use
        return Prompt([*lead, *_for_template(said)], list(use.tools) if use else [])


# Chat templates know `system` alone; OpenAI renamed it.
_ROLES = {"developer": "system"}


def _for_template(said: list[Message]) -> list[dict[str, Any]]:
    """As chat templates read messages: arguments as objects, results with their function's name."""
    names: dict[str, str] = {}
    written = []
    for message in said:
        one: dict[str, Any] = {"role": _ROLES.get(message.role, message.role), "content": message.text}
        if message.tool_calls:
            names |= {call.id: call.name for call in message.tool_calls}
            one["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": _arguments(call.arguments)},
                }
                for call in message.tool_calls
            ]
        if message.tool_call_id is not None:
            one |= {"tool_call_id": message.tool_call_id, "name": names.get(message.tool_call_id, "")}
        written.append(one)
    return written


def _arguments(written: str) -> Any:
    """A model may have written something else than an object, or no JSON: then its own words stand."""
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        return written
    return found if isinstance(found, dict) else written
