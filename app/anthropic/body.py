"""The parameters of a message, and the job that they ask for. What they say is done, or refused by name."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from app.anthropic import blocks
from app.anthropic import tools as tools_of
from app.anthropic.blocks import Cached, Part, Texts, Turns
from app.anthropic.errors import MessageUnsupported
from app.anthropic.tools import AUTO, Choice, Tools
from app.jobs.requests import MAX_STOP_STRINGS, JsonSchema, PlainText, StopString, TextOptions
from app.jobs.schemas import check_schema
from config.catalogue import catalogue
from config.queues import Tier, Window

# What a message calls the fields of a job, for what a job's own checks find.
NAMES: Final = {
    "max_output_tokens": "max_tokens",
    "text.format": "output_config.format",
    "instructions": "system",
    "input": "messages",
    "stop": "stop_sequences",
}
MAX_TOKENS: Final = 1_000_000
# What Anthropic knows and we do not have: what of it asks for nothing.
UNSUPPORTED: Final[dict[str, tuple[Any, ...]]] = {
    "container": (),
    "context_management": (),
    "diagnostics": (),
    "inference_geo": (),
    "mcp_servers": ([],),
    "speed": ("standard",),
    "user_profile_id": (),
}


class Metadata(Part):
    user_id: Annotated[str, StringConstraints(max_length=256)] | None = None


class Thinking(Part):
    """A reasoning model thinks as much as it does, and all of it is in the answer."""

    type: Literal["adaptive", "disabled", "enabled"]
    display: Literal["summarized", "omitted"] | None = None
    budget_tokens: int | None = None


class SchemaFormat(Part):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")

    @field_validator("schema_")
    @classmethod
    def _bounded(cls, schema: dict[str, Any]) -> dict[str, Any]:
        return check_schema(schema)


class OutputConfig(Part):
    format: SchemaFormat | None = None
    effort: Literal["high"] | None = None


class CreateMessage(Cached):
    """`tier` and `completion_window` are ours."""

    model: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    messages: Turns
    max_tokens: int = Field(ge=1, le=MAX_TOKENS)
    system: str | Texts = ""
    stream: Literal[False] = False
    temperature: float = Field(1.0, ge=0, le=1)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0, le=1_000_000)
    stop_sequences: list[StopString] = Field([], max_length=MAX_STOP_STRINGS)
    tools: Tools = Field([])
    tool_choice: Choice = AUTO
    metadata: Metadata = Metadata()
    thinking: Thinking | None = None
    output_config: OutputConfig = OutputConfig()
    service_tier: Literal["auto", "standard_only"] = "auto"
    tier: Tier | None = None
    completion_window: Window | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_anthropic(cls, given: Any) -> Any:
        """What may be said and means nothing is taken out; what cannot be had is refused."""
        if not isinstance(given, dict):
            return given
        _refuse(given, UNSUPPORTED)
        _refuse_thoughts(given.get("model"), given.get("thinking"))
        if isinstance(config := given.get("output_config"), dict):
            _refuse(config, {"effort": ("high",)}, "output_config.")
        messages = given.get("messages")
        for index, message in enumerate(messages if isinstance(messages, list) else ()):
            if isinstance(message, dict):
                blocks.refuse_foreign(message.get("content"), f"messages.{index}.content")
        nullable = {name for name, field in cls.model_fields.items() if not field.is_required()}
        dropped = {name for name, value in given.items() if value is None and name in nullable}
        kept = {name: value for name, value in given.items() if name not in dropped | UNSUPPORTED.keys()}
        return {**kept, "tools": tools_of.without_foreign(kept["tools"])} if "tools" in kept else kept


def _refuse(given: dict[str, Any], table: dict[str, tuple[Any, ...]], where: str = "") -> None:
    for name, harmless in table.items():
        if given.get(name) is not None and given[name] not in harmless:
            raise MessageUnsupported(f"{where}{name}")


def _refuse_thoughts(model: Any, thinking: Any) -> None:
    """No model can be told how much to think, or not to; those that do not think need no telling."""
    if not isinstance(thinking, dict):
        return
    spec = catalogue().get(model) if isinstance(model, str) else None
    if thinking.get("type") == "disabled" and spec is not None and spec.reasoning_parser:
        raise MessageUnsupported("thinking", "this model always reasons")
    if thinking.get("type") == "enabled" or thinking.get("budget_tokens") is not None:
        raise MessageUnsupported("thinking.budget_tokens", "a model that reasons does so without a budget")
    if thinking.get("display") == "omitted":
        raise MessageUnsupported("thinking.display", "what a model thinks is in its answer")


def fields(body: CreateMessage) -> dict[str, Any]:
    """Those of a `JobRequest`. Raises `RequestInvalid` or `MessageUnsupported`."""
    form = body.output_config.format
    schema = form and JsonSchema(type="json_schema", schema=form.schema_)
    user_id = body.metadata.user_id
    return {
        "model": body.model,
        "input": blocks.for_job(body.messages),
        "instructions": blocks.joined(body.system) or None,
        "max_output_tokens": body.max_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "stop": body.stop_sequences,
        **tools_of.for_job(body.tools, body.tool_choice),
        "text": TextOptions(format=schema or PlainText()),
        "metadata": {"user_id": user_id} if user_id else {},
        "tier": body.tier,
        "completion_window": body.completion_window,
    }
