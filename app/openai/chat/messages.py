"""The messages of a chat: as OpenAI writes them, and as jobs read them. What no model here reads (pictures,
sound, files, names of participants) is refused by name.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from app.jobs.errors import RequestInvalid
from app.jobs.requests import MAX_MESSAGES, Message
from app.jobs.tools import MAX_ARGUMENTS_CHARS, MAX_TOOL_CALLS, CallId, FunctionName, ToolCall
from app.openai.errors import Unsupported
from app.openai.extras import Harmless, refuse
from app.openai.sampling import Part, without_nulls


class Text(Part):
    type: Literal["text"]
    text: str


class Refusal(Part):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


Texts = Annotated[list[Text], Field(min_length=1)]
Said = Annotated[list[Annotated[Text | Refusal, Field(discriminator="type")]], Field(min_length=1)]


class Told(Part):
    role: Literal["system", "developer", "user"]
    content: str | Texts

    @property
    def for_job(self) -> Message:
        return Message(role=self.role, content=_joined(self.content))


class CalledFunction(Part):
    """`parsed_arguments` is what the SDK's `.parse()` adds: the same again."""

    name: FunctionName
    arguments: str = Field(max_length=MAX_ARGUMENTS_CHARS)
    parsed_arguments: Any = None


class Call(Part):
    """`index` is its place, which the SDK leaves in what it put together from a stream."""

    id: CallId
    index: int | None = None
    type: Literal["function"]
    function: CalledFunction


class Answer(Part):
    """An assistant's, as written by hand or given back as it came. `parsed`, from the SDK's `.parse()`, is the
    content again; reasoning is not read a second time.
    """

    role: Literal["assistant"]
    content: str | Said | None = None
    refusal: str | None = None
    tool_calls: list[Call] = Field(default_factory=list, max_length=MAX_TOOL_CALLS)
    reasoning_content: str | None = None
    parsed: Any = None

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, given: Any) -> Any:
        return without_nulls(given)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.content is None and self.refusal is None and not self.tool_calls:
            raise ValueError("an assistant's message has content, a refusal or tool_calls")
        return self

    @property
    def for_job(self) -> Message:
        """A refusal was said, too."""
        calls = [
            ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in self.tool_calls
        ]
        said = _joined(self.content or "") + (self.refusal or "")
        return Message(role=self.role, content=said, tool_calls=calls)


class Result(Part):
    """A tool's. Its function may be named once more."""

    role: Literal["tool"]
    content: str | Texts
    tool_call_id: CallId
    name: str | None = None

    @property
    def for_job(self) -> Message:
        return Message(role=self.role, content=_joined(self.content), tool_call_id=self.tool_call_id)


ChatMessage = Annotated[Told | Answer | Result, Field(discriminator="role")]
Messages = Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]


def _joined(content: str | Sequence[Text | Refusal]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


_FOREIGN_PARTS: Final = ("image_url", "input_audio", "file")
_FOREIGN_TO_TOOLS: Final[Harmless] = {"audio": (), "function_call": (), "annotations": ([],)}
_FOREIGN: Final[Harmless] = {**_FOREIGN_TO_TOOLS, "name": ()}


def refuse_foreign(messages: Any) -> Iterator[Any]:
    """Raw messages, without fields that say nothing. Raises `Unsupported` for the first thing that OpenAI reads
    and we do not.
    """
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            yield message
            continue
        where = f"messages.{index}."
        role = message.get("role")
        if role == "function":
            raise Unsupported(f"{where}role")
        foreign = _FOREIGN_TO_TOOLS if role == "tool" else _FOREIGN
        refuse(message, foreign, where)
        for name in ("content", "tool_calls"):
            if isinstance(parts := message.get(name), list):
                _refuse_kinds(parts, f"{where}{name}.")
        yield {name: value for name, value in message.items() if name not in foreign}


def _refuse_kinds(parts: list[Any], where: str) -> None:
    for index, part in enumerate(parts):
        if isinstance(part, dict) and part.get("type") in {*_FOREIGN_PARTS, "custom"}:
            raise Unsupported(f"{where}{index}")


def for_job(messages: Sequence[Told | Answer | Result]) -> list[Message]:
    """Raises `RequestInvalid` for a result of no call."""
    called: dict[str, str] = {}
    for index, message in enumerate(messages):
        if isinstance(message, Answer):
            called |= {call.id: call.function.name for call in message.tool_calls}
        if isinstance(message, Result):
            _check_result(message, called, f"messages.{index}.")
    return [message.for_job for message in messages]


def _check_result(result: Result, called: dict[str, str], where: str) -> None:
    name = called.get(result.tool_call_id)
    if name is None:
        raise RequestInvalid(
            f"{where}tool_call_id", f"'{where}tool_call_id' names no call of an assistant's message before it."
        )
    if result.name is not None and result.name != name:
        raise RequestInvalid(f"{where}name", f"'{where}name' is not '{name}', which the call was for.")
