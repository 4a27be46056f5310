"""The messages of a conversation: as Anthropic writes them, in blocks, and as jobs read them. What no model
here reads (pictures, documents, what Anthropic's own tools leave) is refused by its place.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from app.anthropic.errors import MessageUnsupported
from app.jobs.errors import RequestInvalid
from app.jobs.requests import MAX_MESSAGES, Message
from app.jobs.tools import MAX_TOOL_CALLS, CallId, FunctionName, ToolCall

# Texts of one message stand apart, as Anthropic's blocks do.
BETWEEN: Final = "\n"
# What a model wrote in place of a call's input, under the name that Anthropic advises for it.
NOT_JSON: Final = "INVALID_JSON"


class Part(BaseModel):
    """A piece of a body."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Cached(Part):
    """`cache_control` changes nothing: what an account sent before is found without it."""

    cache_control: dict[str, Any] | None = None


class Text(Cached):
    type: Literal["text"]
    text: str
    citations: list[Any] | None = Field(None, max_length=0)


class Thought(Part):
    """What an answer thought, given back: it is not read a second time."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class Use(Cached):
    """A call, given back as it came."""

    type: Literal["tool_use"]
    id: CallId
    name: FunctionName
    input: dict[str, Any]
    caller: Any = None

    @property
    def for_job(self) -> ToolCall:
        written = self.input[NOT_JSON] if self.input.keys() == {NOT_JSON} else orjson.dumps(self.input).decode()
        return ToolCall(id=self.id, name=self.name, arguments=str(written))


class Result(Cached):
    """The model reads what a tool said; that it `is_error` must be in the words."""

    type: Literal["tool_result"]
    tool_use_id: CallId
    content: str | list[Text] = ""
    is_error: bool = False


Texts = Annotated[list[Text], Field(min_length=1)]
Told = Annotated[list[Annotated[Text | Result, Field(discriminator="type")]], Field(min_length=1)]
Said = Annotated[list[Annotated[Text | Thought | Use, Field(discriminator="type")]], Field(min_length=1)]


class User(Part):
    role: Literal["user"]
    content: str | Told

    def for_job(self, called: set[str], where: str) -> Iterator[Message]:
        """Raises `RequestInvalid` for a result of no call."""
        for index, block in enumerate(blocks(self.content)):
            if isinstance(block, Text):
                yield Message(role="user", content=block.text)
                continue
            assert isinstance(block, Result)
            if block.tool_use_id not in called:
                name = f"{where}.content.{index}.tool_use_id"
                raise RequestInvalid(name, f"'{name}' names no tool_use of an assistant's message before it.")
            yield Message(role="tool", content=joined(block.content), tool_call_id=block.tool_use_id)


class Assistant(Part):
    role: Literal["assistant"]
    content: str | Said

    def for_job(self, called: set[str], where: str) -> Iterator[Message]:
        found = blocks(self.content)
        uses = [block for block in found if isinstance(block, Use)]
        if len(uses) > MAX_TOOL_CALLS:
            raise RequestInvalid(f"{where}.content", f"'{where}.content' has more than {MAX_TOOL_CALLS} calls.")
        called |= {use.id for use in uses}
        said = joined([block for block in found if isinstance(block, Text)])
        yield Message(role="assistant", content=said, tool_calls=[use.for_job for use in uses])


class System(Part):
    role: Literal["system"]
    content: str | Texts

    def for_job(self, called: set[str], where: str) -> Iterator[Message]:  # noqa: ARG002 - as a user's
        yield Message(role="system", content=joined(self.content))


Turn = Annotated[User | Assistant | System, Field(discriminator="role")]
Turns = Annotated[list[Turn], Field(min_length=1, max_length=MAX_MESSAGES)]


def blocks(content: Any) -> Sequence[Any]:
    return [Text(type="text", text=content)] if isinstance(content, str) else content


def joined(content: str | Sequence[Text]) -> str:
    return content if isinstance(content, str) else BETWEEN.join(block.text for block in content)


def for_job(turns: Sequence[User | Assistant | System]) -> list[Message]:
    """Neighbours of one role are one turn. Raises `MessageUnsupported` where the last is the model's."""
    if isinstance(turns[-1], Assistant):
        where = f"messages.{len(turns) - 1}"
        raise MessageUnsupported(where, "an answer cannot be begun for the model")
    called: set[str] = set()
    made: list[Message] = []
    for index, turn in enumerate(turns):
        for message in turn.for_job(called, f"messages.{index}"):
            if made and made[-1].role == message.role != "tool":
                made[-1] = _one(made[-1], message)
            else:
                made.append(message)
    return made


def _one(first: Message, second: Message) -> Message:
    said = BETWEEN.join(text for text in (first.text, second.text) if text)
    return Message(role=first.role, content=said, tool_calls=[*first.tool_calls, *second.tool_calls])


_FOREIGN: Final = frozenset({
    "image", "document", "search_result", "container_upload", "server_tool_use", "web_search_tool_result",
    "web_fetch_tool_result", "code_execution_tool_result", "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result", "tool_search_tool_result", "tool_reference", "browser_state",
    "redacted_thinking", "mcp_tool_use", "mcp_tool_result",
})  # fmt: skip


def refuse_foreign(content: Any, where: str) -> None:
    """Raises `MessageUnsupported` for the first block that Anthropic reads and we do not."""
    for index, block in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(block, dict):
            continue
        if isinstance(kind := block.get("type"), str) and kind in _FOREIGN:
            raise MessageUnsupported(f"{where}.{index}")
        if block.get("citations"):
            raise MessageUnsupported(f"{where}.{index}.citations")
        if kind == "tool_result":
            refuse_foreign(block.get("content"), f"{where}.{index}.content")
