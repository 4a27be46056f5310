"""Functions that a model may ask its client to call: their shapes and limits."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from app.jobs.schemas import check_parameters

MAX_TOOLS = 128
MAX_TOOL_DESCRIPTION_CHARS = 8_192
MAX_TOOL_CALLS = 128  # in one message
MAX_ARGUMENTS_CHARS = 262_144

FunctionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
CallId = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FunctionTool(_Shape):
    """`parameters` is a JSON schema of an object; `strict` holds the model to it."""

    type: Literal["function"] = "function"
    name: FunctionName
    description: str | None = Field(None, max_length=MAX_TOOL_DESCRIPTION_CHARS)
    parameters: dict[str, Any] | None = None
    strict: bool = False

    @field_validator("parameters")
    @classmethod
    def _bounded(cls, parameters: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if parameters is None else check_parameters(parameters)

    @property
    def for_template(self) -> dict[str, Any]:
        """As chat templates read a tool."""
        function = {"name": self.name, "description": self.description or ""}
        return {"type": "function", "function": {**function, "parameters": self.parameters or EMPTY_OBJECT}}


EMPTY_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


class NamedFunction(_Shape):
    """The one function that must be called."""

    type: Literal["function"] = "function"
    name: FunctionName


ToolChoice = Literal["auto", "none", "required"] | NamedFunction


class ToolCall(_Shape):
    """A call that a model asked for; `arguments` is JSON as the model wrote it."""

    id: CallId
    name: FunctionName
    arguments: str = Field(max_length=MAX_ARGUMENTS_CHARS)
