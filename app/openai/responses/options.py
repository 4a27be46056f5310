"""What a call to Responses may ask for beside its input: tools and which of them, formats, how it is to run.
What OpenAI knows and we cannot do is refused by its name.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag, field_validator, model_validator

from app.jobs.errors import RequestInvalid
from app.jobs.requests import JsonObject, PlainText, TextOptions
from app.jobs.requests import JsonSchema as AnySchema
from app.jobs.schemas import check_parameters
from app.jobs.tools import (
    MAX_TOOL_DESCRIPTION_CHARS,
    MAX_TOOLS,
    FunctionName,
    FunctionTool,
    NamedFunction,
    ToolChoice,
)
from app.openai.errors import Unsupported
from app.openai.extras import Harmless, refuse
from app.openai.sampling import Part, without_nulls
from config.queues import Window


class Option(Part):
    """A part whose nulls stand for defaults; `UNSUPPORTED` is refused under its name in the whole body."""

    WHERE: ClassVar[str] = ""
    UNSUPPORTED: ClassVar[Harmless] = {}

    @model_validator(mode="before")
    @classmethod
    def _served(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        refuse(given, cls.UNSUPPORTED, cls.WHERE)
        return {name: value for name, value in without_nulls(given).items() if name not in cls.UNSUPPORTED}


class Tool(Option):
    """A function; `strict` holds the model to its schema, and is false here unless it is said."""

    type: Literal["function"]
    name: FunctionName
    description: str | None = Field(None, max_length=MAX_TOOL_DESCRIPTION_CHARS)
    parameters: dict[str, Any] | None = None
    strict: bool = False

    @field_validator("parameters")
    @classmethod
    def _bounded(cls, parameters: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if parameters is None else check_parameters(parameters)

    @property
    def for_job(self) -> FunctionTool:
        return FunctionTool(**self.model_dump())


_FOREIGN_IN_TOOLS: Final[Harmless] = {
    "allowed_callers": (["direct"],),
    "defer_loading": (False,),
    "output_schema": (),
}


def readied(tools: Any) -> Any:
    """Raises `Unsupported` for a tool that is OpenAI's alone."""
    if not isinstance(tools, list):
        return tools
    return [_readied(tool, f"tools.{index}.") for index, tool in enumerate(tools)]


def _readied(tool: Any, where: str) -> Any:
    if not isinstance(tool, dict):
        return tool
    kind = tool.get("type")
    if isinstance(kind, str) and kind != "function":
        raise Unsupported(f"{where}type", f"a tool of the type '{kind}', only functions are")
    refuse(tool, _FOREIGN_IN_TOOLS, where)
    return {name: value for name, value in tool.items() if name not in _FOREIGN_IN_TOOLS}


class Named(Part):
    type: Literal["function"]
    name: FunctionName


class Allowed(Part):
    """Only some of the tools: the model is told of no others."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[Named], Field(min_length=1, max_length=MAX_TOOLS)]


def _form_of_choice(given: Any) -> str:
    """So that a fault is found in the form that was meant."""
    kind = given.get("type") if isinstance(given, dict) else getattr(given, "type", "word")
    return kind if isinstance(kind, str) else "function"


Choice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("word")]
    | Annotated[Named, Tag("function")]
    | Annotated[Allowed, Tag("allowed_tools")],
    Discriminator(_form_of_choice),
]


def readied_choice(choice: Any) -> Any:
    """Raises `Unsupported` for a choice of a tool that is OpenAI's alone."""
    kind = choice.get("type") if isinstance(choice, dict) else None
    if isinstance(kind, str) and kind not in {"function", "allowed_tools"}:
        raise Unsupported("tool_choice.type", f"a choice of the type '{kind}'")
    return choice


def for_job(tools: Sequence[Tool], choice: Choice) -> tuple[list[FunctionTool], ToolChoice]:
    """What the model is told of, and what it may or must call. Raises `RequestInvalid` where the choice allows
    what is not there.
    """
    given = [tool.for_job for tool in tools]
    if isinstance(choice, Named):
        return given, NamedFunction(name=choice.name)
    if not isinstance(choice, Allowed):
        return given, choice
    wanted = {tool.name for tool in choice.tools}
    if unknown := wanted - {tool.name for tool in given}:
        name = min(unknown)
        raise RequestInvalid("tool_choice", f"tool_choice allows '{name}', which is not among tools.")
    return [tool for tool in given if tool.name in wanted], choice.mode


class JsonSchema(AnySchema):
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    strict: bool = Field(True, description="An answer keeps to the schema either way.")

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, given: Any) -> Any:
        return without_nulls(given)


class TextConfig(Option):
    WHERE = "text."
    UNSUPPORTED: ClassVar[Harmless] = {"verbosity": ("medium",)}

    format: Annotated[PlainText | JsonObject | JsonSchema, Field(discriminator="type")] = PlainText()

    @property
    def for_job(self) -> TextOptions:
        return TextOptions.model_validate(self.model_dump(by_alias=True))

    @property
    def echo(self) -> dict[str, Any]:
        return {**self.model_dump(mode="json", by_alias=True, exclude_none=True), "verbosity": "medium"}


class Reasoning(Option):
    """What a reasoning model thought is in the output, whole; how much it thinks is its own."""

    WHERE = "reasoning."
    UNSUPPORTED: ClassVar[Harmless] = {
        "context": ("auto",),
        "effort": ("none", "medium"),
        "generate_summary": (),
        "mode": ("standard",),
        "summary": (),
    }


class StreamOptions(Option):
    WHERE = "stream_options."
    UNSUPPORTED: ClassVar[Harmless] = {"include_obfuscation": (False,)}


class BackgroundOptions(Option):
    """`continuation_id` is a session of ours: what continues another keeps its place in the line."""

    completion_window: Window | None = None
    continuation_id: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = None


LOGPROBS: Final = "message.output_text.logprobs"
# Reasoning is in the output in the clear: there is nothing to encrypt.
Include = Literal["message.output_text.logprobs", "reasoning.encrypted_content"]
_FOREIGN_INCLUDES: Final = {
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
}


def refuse_includes(include: Any) -> Any:
    """Raises `Unsupported` for what only tools of OpenAI's could include."""
    for index, name in enumerate(include if isinstance(include, list) else ()):
        if isinstance(name, str) and name in _FOREIGN_INCLUDES:
            raise Unsupported(f"include.{index}", f"'{name}'")
    return include
