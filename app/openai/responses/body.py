"""The body of `POST /v1/responses`, and the job that it asks for. What it says is done, or refused by its name;
null, and what OpenAI means as nothing asked for, are taken as that.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from app.jobs.errors import RequestInvalid
from app.jobs.requests import MAX_INPUT_CHARS, MAX_STOP_STRINGS, JobRequest, Message, StopString
from app.jobs.tools import MAX_TOOLS
from app.openai import extras
from app.openai.extras import Extras, Harmless, Routing, require_reasoning
from app.openai.responses import items as items_of
from app.openai.responses import options
from app.openai.responses.items import Input
from app.openai.responses.options import LOGPROBS, Allowed
from app.openai.sampling import MAX_TOKENS, Identifier, Seed

ResponseId = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Json = dict[str, Any]


class Asking(Extras):
    """What a model is to read: the body of `POST /v1/responses/input_tokens`, and a part of the other."""

    UNSUPPORTED: ClassVar[Harmless] = {"conversation": (), "personality": ()}

    model: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    input: Input
    instructions: str | None = Field(None, max_length=MAX_INPUT_CHARS)
    previous_response_id: ResponseId | None = None
    tools: list[options.Tool] = Field(default_factory=list, max_length=MAX_TOOLS)
    tool_choice: options.Choice = "auto"
    parallel_tool_calls: bool = True
    text: options.TextConfig = options.TextConfig()
    reasoning: options.Reasoning | None = None
    truncation: Literal["auto", "disabled"] = "disabled"

    @model_validator(mode="before")
    @classmethod
    def _served(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        if isinstance(reasoning := given.get("reasoning"), dict):
            require_reasoning(given.get("model"), reasoning.get("effort"), "reasoning.effort")
        readied = {name: ready(given[name]) for name, ready in _READY.items() if name in given}
        return {**given, **readied}

    @property
    def reading(self) -> Json:
        """Those fields of a `JobRequest` that say what the model reads, but for the input. Raises
        `RequestInvalid`.
        """
        tools, choice = options.for_job(self.tools, self.tool_choice)
        return {
            "model": self.model,
            "instructions": self.instructions,
            "tools": tools,
            "tool_choice": choice,
            "parallel_tool_calls": self.parallel_tool_calls,
            "text": self.text.for_job,
        }


_READY: Final = {
    "input": items_of.readied,
    "tools": options.readied,
    "tool_choice": options.readied_choice,
    "include": options.refuse_includes,
}


class CountInputTokens(Asking):
    """The body of `POST /v1/responses/input_tokens`."""


class CreateResponse(Asking):
    """What OpenAI does not have is ours, under vLLM's names."""

    UNSUPPORTED: ClassVar[Harmless] = {
        "access_programs": (),
        "context_management": (),
        "conversation": (),
        "image": (),
        "max_tool_calls": (),
        "moderation": (),
        "prompt": (),
        "prompt_cache_options": ({"mode": "implicit"},),
        "prompt_cache_retention": ("in_memory",),
    }

    background: bool = False
    background_options: options.BackgroundOptions | None = None
    include: list[options.Include] = Field(default_factory=list)
    max_output_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)
    prompt_cache_key: Identifier | None = None
    safety_identifier: Annotated[str, StringConstraints(max_length=64)] | None = None
    store: bool = True
    stream: bool = False
    stream_options: options.StreamOptions | None = None
    temperature: float = Field(1.0, ge=0, le=2)
    top_logprobs: int | None = Field(None, ge=0, le=20)
    top_p: float = Field(1.0, gt=0, le=1)
    user: Identifier | None = None

    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    ignore_eos: bool = False
    min_p: float = Field(0.0, ge=0, le=1)
    min_tokens: int = Field(0, ge=0, le=MAX_TOKENS)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    repetition_penalty: float = Field(1.0, gt=0, le=10)
    seed: Seed | None = None
    stop: list[StopString] = Field(
        default_factory=list, max_length=MAX_STOP_STRINGS, description="A string stands for a list of it."
    )
    top_k: int = Field(0, ge=0, le=1_000_000)

    @field_validator("stop", mode="before")
    @classmethod
    def _one_or_many(cls, stop: Any) -> Any:
        return [stop] if isinstance(stop, str) else stop

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is only allowed where stream is true")
        if self.background_options is not None and not self.background:
            raise ValueError("background_options is only allowed where background is true")
        return self

    @property
    def routing(self) -> Routing:
        """Raises `RequestInvalid` or `Unsupported`."""
        wanted = self.background_options
        if wanted is None:
            return extras.resolve(self)
        body = self
        if wanted.continuation_id is not None and self.session_id is None:
            body = self.model_copy(update={"session_id": wanted.continuation_id})
        return extras.resolve(body, wanted.completion_window)

    @property
    def logprobs(self) -> int | None:
        """How many alternatives each token comes with; None without logprobs."""
        return self.top_logprobs or 0 if LOGPROBS in self.include or self.top_logprobs else None


# What a response calls the fields of a job, for what a job's own checks find.
NAMES: Final = {"min_output_tokens": "min_tokens", "logprobs": "top_logprobs"}

_SAME: Final = (
    "metadata", "max_output_tokens", "temperature", "top_p", "presence_penalty", "frequency_penalty", "stop",
    "top_k", "min_p", "repetition_penalty", "ignore_eos", "seed", "logprobs",
)  # fmt: skip


def to_request(body: Asking, earlier: Sequence[Message] = ()) -> JobRequest:
    """The job that `body` asks for, or for a count, one that reads the same; `earlier` is what came before in
    its conversation. Raises `RequestInvalid` or `Unsupported`.
    """
    fields = {**body.reading, "input": _input(body, earlier)}
    if isinstance(body, CreateResponse):
        fields |= {name: getattr(body, name) for name in _SAME}
        fields |= {"min_output_tokens": body.min_tokens, **body.routing.fields}
    return extras.requesting(fields, NAMES)


def _input(body: Asking, earlier: Sequence[Message]) -> str | list[Message]:
    if isinstance(body.input, str) and not earlier:
        return body.input
    items = items_of.stored(body.input)
    called = {call.id for message in earlier for call in message.tool_calls}
    for index, item in enumerate(items):
        if item["type"] == "function_call":
            called.add(item["call_id"])
        elif item["type"] == "function_call_output" and item["call_id"] not in called:
            raise RequestInvalid(
                f"input.{index}.call_id", f"No tool call found for function call output '{item['call_id']}'."
            )
    said = items_of.messages(items, earlier)
    if not said:
        raise RequestInvalid("input", "'input' has nothing that the model reads.")
    return said


def echo(body: CreateResponse, earlier: Sequence[Json] = ()) -> Json:
    """What a job of `body` must say again when it is spoken of as a Response; `earlier` are the items that came
    before in its conversation.
    """
    said: Json = {
        "background": body.background,
        "max_output_tokens": body.max_output_tokens,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "safety_identifier": body.safety_identifier,
        "service_tier": body.routing.service_tier,
        "store": body.store,
        "text": body.text.echo,
        "top_logprobs": body.top_logprobs,
        "truncation": body.truncation,
        "user": body.user,
        "items": [*earlier, *items_of.stored(body.input)],
    }
    if isinstance(body.tool_choice, Allowed):
        said["tool_choice"] = body.tool_choice.model_dump(mode="json")
        said["tools"] = [tool.for_job.model_dump(mode="json") for tool in body.tools]
    return said
