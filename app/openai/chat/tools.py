"""The functions of a chat, as OpenAI writes them, and which of them may or must be called."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from app.jobs.errors import RequestInvalid
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
from app.openai.sampling import Part


class Function(Part):
    name: FunctionName
    description: str | None = Field(None, max_length=MAX_TOOL_DESCRIPTION_CHARS)
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @field_validator("parameters")
    @classmethod
    def _bounded(cls, parameters: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if parameters is None else check_parameters(parameters)


class Tool(Part):
    type: Literal["function"]
    function: Function

    @property
    def for_job(self) -> FunctionTool:
        function = self.function
        return FunctionTool(
            name=function.name,
            description=function.description,
            parameters=function.parameters,
            strict=bool(function.strict),
        )


class Name(Part):
    name: FunctionName


class Named(Part):
    """The one function that must be called, or one of those that may be."""

    type: Literal["function"]
    function: Name


class AllowedTools(Part):
    mode: Literal["auto", "required"]
    tools: Annotated[list[Named], Field(min_length=1, max_length=MAX_TOOLS)]


class Allowed(Part):
    """Only some of the tools: the model is told of no others."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


Tools = Annotated[list[Tool], Field(max_length=MAX_TOOLS)]
Choice = Literal["none", "auto", "required"] | Annotated[Named | Allowed, Field(discriminator="type")]


def refuse_foreign(tools: Any, choice: Any) -> None:
    """Raises `Unsupported` for what OpenAI calls a custom tool."""
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict) and tool.get("type") == "custom":
            raise Unsupported(f"tools.{index}.type")
    if isinstance(choice, dict) and choice.get("type") == "custom":
        raise Unsupported("tool_choice.type")


def for_job(tools: Sequence[Tool], choice: Choice) -> tuple[list[FunctionTool], ToolChoice]:
    """Raises `RequestInvalid` where the choice allows what is not there."""
    given = [tool.for_job for tool in tools]
    if isinstance(choice, Named):
        return given, NamedFunction(name=choice.function.name)
    if not isinstance(choice, Allowed):
        return given, choice
    wanted = [tool.function.name for tool in choice.allowed_tools.tools]
    if unknown := set(wanted) - {tool.name for tool in given}:
        name = min(unknown)
        raise RequestInvalid("tool_choice", f"tool_choice allows '{name}', which is not among tools.")
    return [tool for tool in given if tool.name in wanted], choice.allowed_tools.mode
