"""Input items: what a call may hand in, the messages that they make for the model, and the list that
`input_items` serves. Output items are input items of whatever follows.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag

from app.jobs.log import Output
from app.jobs.requests import MAX_MESSAGES, Message
from app.jobs.tables import Job
from app.jobs.tools import MAX_ARGUMENTS_CHARS, CallId, FunctionName, ToolCall
from app.openai import ids
from app.openai.errors import Unsupported
from app.openai.extras import refuse
from app.openai.fold import parts_of_job
from app.openai.responses.output import items_of, status_of_last
from app.openai.sampling import Part, without_nulls

MAX_ITEMS: Final = 2 * MAX_MESSAGES

ItemId = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Json = dict[str, Any]

_SERVED: Final = {"message", "function_call", "function_call_output", "reasoning"}
# What OpenAI knows of items beside what is served; null always means nothing.
_FOREIGN: Final[dict[str, tuple[Any, ...]]] = {"caller": (), "namespace": (), "created_by": ()}


class Text(Part):
    """`annotations` and `logprobs` come back with an earlier output; the model reads the text."""

    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: list[Any] = Field([])
    logprobs: list[Any] = Field([])


class Refusal(Part):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


Content = Annotated[Text | Refusal, Field(discriminator="type")]


class _Item(Part):
    id: ItemId | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class MessageItem(_Item):
    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Content]
    phase: Literal["commentary", "final_answer"] | None = Field(None, description="Kept, and no more.")

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class FunctionCallItem(_Item):
    type: Literal["function_call"]
    call_id: CallId
    name: FunctionName
    arguments: str = Field(max_length=MAX_ARGUMENTS_CHARS)


class FunctionCallOutputItem(_Item):
    type: Literal["function_call_output"]
    call_id: CallId
    name: str | None = None
    output: str | list[Text]

    @property
    def text(self) -> str:
        return self.output if isinstance(self.output, str) else "".join(part.text for part in self.output)


class Thought(Part):
    type: Literal["summary_text", "reasoning_text"]
    text: str


class ReasoningItem(_Item):
    """Taken, and not shown to the model: what it thought belongs to its earlier turn."""

    type: Literal["reasoning"]
    summary: list[Thought] = Field([])
    content: list[Thought] | None = None
    encrypted_content: str | None = None


AnyItem = Annotated[
    MessageItem | FunctionCallItem | FunctionCallOutputItem | ReasoningItem, Field(discriminator="type")
]
Input = Annotated[
    Annotated[str, Tag("text")]
    | Annotated[list[AnyItem], Field(min_length=1, max_length=MAX_ITEMS), Tag("items")],
    # So that a fault is found in the form that was meant.
    Discriminator(lambda given: "items" if isinstance(given, list | tuple) else "text"),
]


def readied(given: Any) -> Any:
    """A list of input items as their shapes read it. Raises `Unsupported` for those that are OpenAI's alone."""
    if not isinstance(given, list):
        return given
    return [_readied(item, f"input.{index}") for index, item in enumerate(given)]


def _readied(item: Any, where: str) -> Any:
    if not isinstance(item, dict):
        return item
    kind = item.get("type")
    if kind is None and "role" not in item and "id" in item:
        kind = "item_reference"
    kind = "message" if kind is None else kind
    if isinstance(kind, str) and kind not in _SERVED:
        hint = (
            "hand in the item, not a reference to it"
            if kind == "item_reference"
            else f"an item of the type '{kind}'"
        )
        raise Unsupported(f"{where}.type" if "type" in item else where, hint)
    refuse(item, _FOREIGN, f"{where}.")
    kept = {name: value for name, value in item.items() if name not in _FOREIGN}
    for name in ("content", "output"):
        if kind != "reasoning" and isinstance(kept.get(name), list):
            kept[name] = [_part(part, f"{where}.{name}.{i}") for i, part in enumerate(kept[name])]
    return {**kept, "type": kind}


def _part(part: Any, where: str) -> Any:
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    if isinstance(kind, str) and kind.startswith(("input_", "computer_")) and kind != "input_text":
        raise Unsupported(f"{where}.type", f"content of the type '{kind}'")
    refuse(part, {"prompt_cache_breakpoint": ()}, f"{where}.")
    return {name: value for name, value in without_nulls(part).items() if name != "prompt_cache_breakpoint"}


def stored(given: str | Sequence[AnyItem]) -> list[Json]:
    """What a call hands in, in the one form in which items are kept and listed, without ids of ours."""
    if isinstance(given, str):
        given = [MessageItem(role="user", content=given)]
    return [_stored(item) for item in given]


def _stored(item: AnyItem) -> Json:
    kept = item.model_dump(mode="json", exclude_none=True)
    if isinstance(item, MessageItem):
        kept["content"] = [_kept_part(text, item.role) for text in _texts(item)]
    if not isinstance(item, ReasoningItem):
        kept.setdefault("status", "completed")
    return kept


def _texts(item: MessageItem) -> list[str]:
    return [item.content] if isinstance(item.content, str) else [part.text for part in item.content]


def _kept_part(text: str, role: str) -> Json:
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "input_text", "text": text}


def messages(items: Iterable[Json], earlier: Sequence[Message] = ()) -> list[Message]:
    """Kept items as messages, after `earlier` ones: calls that follow one another, or an assistant's words, are
    one message.
    """
    made = list(earlier)
    for item in items:
        match item["type"]:
            case "message":
                made.append(Message(role=item["role"], content=_joined(item["content"])))
            case "function_call":
                call = ToolCall(id=item["call_id"], name=item["name"], arguments=item["arguments"])
                if made and made[-1].role == "assistant":
                    before = made.pop()
                    made.append(before.model_copy(update={"tool_calls": [*before.tool_calls, call]}))
                else:
                    made.append(Message(role="assistant", tool_calls=[call]))
            case "function_call_output":
                content = _joined(item["output"])
                made.append(Message(role="tool", content=content, tool_call_id=item["call_id"]))
    return made


def _joined(content: str | Sequence[Json]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


_PREFIX: Final = {
    "message": ids.MESSAGE,
    "function_call": ids.FUNCTION_CALL,
    "function_call_output": ids.FUNCTION_CALL_OUTPUT,
    "reasoning": ids.REASONING,
}


def input_items(job: Job) -> list[Json]:
    """What a response was given, what it took over included, each with an id that no other of them has."""
    used: set[str] = set()
    listed = []
    for index, item in enumerate((job.echo or {}).get("items", ())):
        own = item.get("id")
        if own is None or own in used:
            own = ids.input_item_id(_PREFIX[item["type"]], job.id, index)
        used.add(own)
        listed.append({**item, "id": own})
    return listed


def conversation(job: Job, output: Output) -> list[Json]:
    """The items of a response that ended, for what follows it: its input and its output, but for a call that
    was cut off.
    """
    made = items_of(job.id, parts_of_job(output)).describe(status_of_last(job.status))
    return input_items(job) + [
        item for item in made if item["type"] != "function_call" or item["status"] == "completed"
    ]
