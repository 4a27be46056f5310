"""The body of `POST /v1/chat/completions`, and the jobs that it asks for. What it says is done, or refused."""

from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from app.jobs.requests import JobRequest, JsonObject, JsonSchema, PlainText, TextOptions
from app.jobs.schemas import check_schema
from app.openai import extras
from app.openai.chat import messages as messages_of
from app.openai.chat import tools as tools_of
from app.openai.chat.messages import Messages
from app.openai.chat.tools import Choice, Tools
from app.openai.extras import Harmless, require_reasoning
from app.openai.sampling import MAX_TOKENS, Identifier, Part, Sampling, without_nulls

# What a chat calls the fields of a job, for what a job's own checks find.
NAMES: Final = {
    "max_output_tokens": "max_completion_tokens",
    "min_output_tokens": "min_tokens",
    "text.format": "response_format",
    "input": "messages",
}


class Schema(Part):
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: str | None = Field(None, max_length=1024)
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool = Field(True, description="An answer keeps to the schema either way.")

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, given: Any) -> Any:
        return without_nulls(given)

    @field_validator("schema_")
    @classmethod
    def _bounded(cls, schema: dict[str, Any]) -> dict[str, Any]:
        return check_schema(schema)


class SchemaFormat(Part):
    type: Literal["json_schema"]
    json_schema: Schema


class CreateChat(Sampling):
    UNSUPPORTED: ClassVar[Harmless] = {
        "audio": (),
        "function_call": ("none",),
        "functions": (),
        "modalities": (["text"],),
        "moderation": (),
        "prediction": (),
        "prompt_cache_options": ({"mode": "implicit"},),
        "prompt_cache_retention": ("in_memory",),
        "reasoning_effort": ("none", "medium"),
        "verbosity": ("medium",),
        "web_search_options": (),
    }

    messages: Messages
    tools: Tools = Field(default_factory=list)
    tool_choice: Choice = "auto"
    parallel_tool_calls: bool = True
    response_format: Annotated[PlainText | JsonObject | SchemaFormat, Field(discriminator="type")] = PlainText()
    max_completion_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)
    max_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS, description="max_completion_tokens' old name.")
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=20)
    safety_identifier: Annotated[str, StringConstraints(max_length=64)] | None = None
    prompt_cache_key: Identifier | None = Field(
        None, description="Harmless: what an account sent before is found without it."
    )

    @model_validator(mode="before")
    @classmethod
    def _foreign(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        require_reasoning(given.get("model"), given.get("reasoning_effort"), "reasoning_effort")
        tools_of.refuse_foreign(given.get("tools"), given.get("tool_choice"))
        if not isinstance(given.get("messages"), list):
            return given
        return {**given, "messages": list(messages_of.refuse_foreign(given["messages"]))}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs is only allowed where logprobs is true")
        if None not in {self.max_tokens, self.max_completion_tokens} and (
            self.max_tokens != self.max_completion_tokens
        ):
            raise ValueError("max_tokens is the old name of max_completion_tokens, and they differ")
        return self


def to_requests(body: CreateChat) -> list[JobRequest]:
    """One job a choice. Raises `RequestInvalid` or `Unsupported`."""
    routing = extras.resolve(body)
    tools, tool_choice = tools_of.for_job(body.tools, body.tool_choice)
    fields = {
        **body.sampling,
        **routing.fields,
        "input": messages_of.for_job(body.messages),
        "tools": tools,
        "tool_choice": tool_choice,
        "parallel_tool_calls": body.parallel_tool_calls,
        "max_output_tokens": body.max_completion_tokens or body.max_tokens,
        "logprobs": (body.top_logprobs or 0) if body.logprobs else None,
        "text": TextOptions(format=_format(body.response_format)),
    }
    return [extras.requesting({**fields, "seed": body.seed_of(index)}, NAMES) for index in range(body.n)]


def echo(body: CreateChat, index: int = 0) -> dict[str, Any]:
    """What is kept of a choice beside its job's request."""
    said = {name: getattr(body, name) for name in ("user", "safety_identifier", "prompt_cache_key")}
    return {"n": body.n, "index": index, **{name: value for name, value in said.items() if value is not None}}


def _format(wanted: PlainText | JsonObject | SchemaFormat) -> PlainText | JsonObject | JsonSchema:
    if not isinstance(wanted, SchemaFormat):
        return wanted
    schema = wanted.json_schema
    return JsonSchema(
        type="json_schema",
        name=schema.name,
        schema=schema.schema_,
        strict=schema.strict,
        description=schema.description,
    )
