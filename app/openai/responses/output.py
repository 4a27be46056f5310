"""The items of a response's output, put together from the parts of a job's output in their order: neighbouring
text makes a message, neighbouring reasoning a reasoning item, each call an item of its own. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from app.jobs.parts import REASONING, TEXT, TOOL_CALL, Part
from app.jobs.states import Status
from app.openai import ids
from app.openai.fold import Logprobs

ItemStatus = Literal["in_progress", "completed", "incomplete"]

_PREFIX: Final = {TEXT: ids.MESSAGE, REASONING: ids.REASONING, TOOL_CALL: ids.FUNCTION_CALL}


@dataclass(slots=True)
class Item:
    """`kind` is that of its parts."""

    kind: str
    index: int
    id: str
    call_id: str = ""
    name: str = ""
    logprobs: Logprobs = field(default_factory=list)
    _pieces: list[str] = field(default_factory=list)

    def append(self, piece: str) -> None:
        self._pieces.append(piece)

    @property
    def text(self) -> str:
        """Its text, or the arguments of its call."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def content_part(self) -> dict[str, Any]:
        """The one content part of a message or a reasoning item."""
        if self.kind == REASONING:
            return {"type": "reasoning_text", "text": self.text}
        return {"type": "output_text", "annotations": [], "logprobs": list(self.logprobs), "text": self.text}

    def arguments(self, status: ItemStatus) -> str:
        """A call without arguments has an empty object of them once it is whole."""
        return self.text or ("{}" if status == "completed" else "")

    def describe(self, status: ItemStatus, *, has_content: bool = True) -> dict[str, Any]:
        """The item; without content as it is first announced."""
        content = [self.content_part()] if has_content and self.kind != TOOL_CALL else []
        match self.kind:
            case "text":
                said = {"type": "message", "role": "assistant", "content": content}
            case "reasoning":
                said = {"type": "reasoning", "summary": [], "content": content}
            case _:
                arguments = self.arguments(status) if has_content else ""
                said = {
                    "type": "function_call",
                    "call_id": self.call_id,
                    "name": self.name,
                    "arguments": arguments,
                }
        return {"id": self.id, **said, "status": status}


class Items:
    """Output items in their making. The calls of one output come one after the other."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._calls: dict[int, Item] = {}
        self.all: list[Item] = []

    @property
    def last(self) -> Item | None:
        return self.all[-1] if self.all else None

    def item_of(self, part: Part) -> tuple[Item, bool]:
        """The item that `part` belongs to, and whether it is new."""
        kind = part["type"]
        if kind == TOOL_CALL:
            if (item := self._calls.get(part["index"])) is not None:
                return item, False
            item = self.open(kind)
            item.call_id, item.name = part["id"], part["name"]
            self._calls[part["index"]] = item
            return item, True
        if self.last is not None and self.last.kind == kind:
            return self.last, False
        return self.open(kind), True

    def open(self, kind: str) -> Item:
        index = len(self.all)
        item = Item(kind, index, ids.item_id(_PREFIX[kind], self._job_id, index))
        self.all.append(item)
        return item

    @property
    def lacks_an_answer(self) -> bool:
        """Whether it neither says nor calls anything; a completed response always does, be it an empty text."""
        return all(item.kind == REASONING for item in self.all)

    def describe(self, last: ItemStatus) -> list[dict[str, Any]]:
        """All of them; `last` is the status of the last one, those before it are whole."""
        whole, open_ones = self.all[:-1], self.all[-1:]
        return [item.describe("completed") for item in whole] + [item.describe(last) for item in open_ones]


def status_of_last(status: Status) -> ItemStatus:
    """What an item that nothing follows is when its job is in `status`."""
    if status is Status.COMPLETED:
        return "completed"
    return "incomplete" if status.is_terminal else "in_progress"


def items_of(job_id: str, parts: Iterable[Part]) -> Items:
    items = Items(job_id)
    for part in parts:
        item, _ = items.item_of(part)
        add(item, part)
    return items


def add(item: Item, part: Part) -> str:
    """Put `part` into its item. Returns the text that it adds."""
    text: str = part.get("arguments", "") if part["type"] == TOOL_CALL else part["text"]
    item.append(text)
    item.logprobs += [with_bytes(entry) for entry in part.get("logprobs") or ()]
    return text


def with_bytes(entry: dict[str, Any]) -> dict[str, Any]:
    """A token's logprob as OpenAI writes it; a log from before tokens had bytes gives those of their text."""
    return {**_bare(entry), "top_logprobs": [_bare(other) for other in entry.get("top_logprobs") or ()]}


def _bare(entry: dict[str, Any]) -> dict[str, Any]:
    spelled = entry.get("bytes")
    spelled = list(entry["token"].encode(errors="replace")) if spelled is None else spelled
    return {"token": entry["token"], "logprob": entry["logprob"], "bytes": spelled}
