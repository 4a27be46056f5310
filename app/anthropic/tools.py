"""The tools of a message, as Anthropic writes them, and which of them may or must be used. Its own tools, which
run on its servers, are refused by their place.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator

from app.anthropic.blocks import Cached, Part
from app.anthropic.errors import MessageUnsupported
from app.jobs.schemas import check_parameters
from app.jobs.tools import (
    MAX_TOOL_DESCRIPTION_CHARS,
    MAX_TOOLS,
    FunctionName,
    FunctionTool,
    NamedFunction,
    ToolChoice,
)


class Tool(Cached):
    type: Literal["custom"] | None = None
    name: FunctionName
    description: str | None = Field(None, max_length=MAX_TOOL_DESCRIPTION_CHARS)
    input_schema: dict[str, Any]
    strict: bool = False
    eager_input_streaming: bool | None = None  # of streams, which batches are not

    @field_validator("input_schema")
    @classmethod
    def _bounded(cls, schema: dict[str, Any]) -> dict[str, Any]:
        return check_parameters(schema)

    @property
    def for_job(self) -> FunctionTool:
        return FunctionTool(
            name=self.name, description=self.description, parameters=self.input_schema, strict=self.strict
        )


class Free(Part):
    type: Literal["auto", "any"]
    disable_parallel_tool_use: bool = False


class Named(Part):
    type: Literal["tool"]
    name: FunctionName
    disable_parallel_tool_use: bool = False


class Nothing(Part):
    type: Literal["none"]
    disable_parallel_tool_use: bool = False


Tools = Annotated[list[Tool], Field(max_length=MAX_TOOLS)]
Choice = Annotated[Free | Named | Nothing, Field(discriminator="type")]
AUTO: Final = Free(type="auto")

# What of a tool is only for Anthropic's own: what of it asks for nothing.
_FOREIGN: Final[dict[str, tuple[Any, ...]]] = {
    "allowed_callers": (None, ["direct"]),
    "defer_loading": (None, False),
    "input_examples": (None, []),
}


def without_foreign(tools: Any) -> Any:
    """Raw tools. Raises `MessageUnsupported`."""
    if not isinstance(tools, list):
        return tools
    return [
        _checked(tool, f"tools.{index}") if isinstance(tool, dict) else tool for index, tool in enumerate(tools)
    ]


def _checked(tool: dict[str, Any], where: str) -> dict[str, Any]:
    if tool.get("type") not in {None, "custom"}:
        raise MessageUnsupported(f"{where}.type", "only tools that the client runs are")
    for name, harmless in _FOREIGN.items():
        if tool.get(name) not in harmless:
            raise MessageUnsupported(f"{where}.{name}")
    return {name: value for name, value in tool.items() if name not in _FOREIGN}


def for_job(tools: Sequence[Tool], choice: Free | Named | Nothing) -> dict[str, Any]:
    """The fields of a `JobRequest`."""
    return {
        "tools": [tool.for_job for tool in tools],
        "tool_choice": _choice(choice),
        "parallel_tool_calls": not choice.disable_parallel_tool_use,
    }


def _choice(choice: Free | Named | Nothing) -> ToolChoice:
    match choice:
        case Named(name=name):
            return NamedFunction(name=name)
        case Nothing():
            return "none"
        case Free(type="any"):
            return "required"
        case _:
            return "auto"
