"""What a Responses stream must be, whatever it tells: its first and last event, its numbers, items that open
and close once, deltas that add up to what the last event says.
"""

from typing import Any

TERMINAL = {"response.completed", "response.incomplete", "response.failed"}


class Story:
    """Take each event as the server sends it. `text` is all that was shown; `created` is the first event's
    response, `response` the last one's.
    """

    def __init__(self) -> None:
        self.types: list[str] = []
        self.numbers: list[int] = []
        self.text = ""
        self.reasoning = ""
        self.created: dict[str, Any] = {}
        self.response: dict[str, Any] = {}
        self._open: dict[int, dict[str, Any]] = {}
        self._done: dict[int, dict[str, Any]] = {}
        self._shown: dict[int, str] = {}

    def take(self, event: dict[str, Any]) -> None:
        kind, number = event["type"], event["sequence_number"]
        if not self.types:
            assert (kind, event["response"]["output"]) == ("response.created", []), event
            assert number == 0
            self.created = event["response"]
        else:
            assert number > self.numbers[-1], f"{kind} has {number} after {self.numbers[-1]}"
        assert not self.is_over, f"{kind} after the end"
        self.types.append(kind)
        self.numbers.append(number)
        if kind in TERMINAL:
            self._end(event["response"])
        elif "output_index" in event:
            self._item(event, event["output_index"])

    @property
    def is_over(self) -> bool:
        return bool(self.types) and self.types[-1] in TERMINAL

    def _item(self, event: dict[str, Any], index: int) -> None:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert index == len(self._open) + len(self._done)
            assert event["item"]["status"] == "in_progress"
            self._open[index] = event["item"]
            self._shown[index] = ""
        elif kind == "output_item.done":
            assert event["item"]["id"] == self._open.pop(index)["id"]
            assert event["item"]["status"] in {"completed", "incomplete"}
            self._done[index] = event["item"]
            assert self._shown[index] == _said(event["item"])
        else:
            assert event["item_id"] == self._open[index]["id"], event
            self._piece(kind, event, index)

    def _piece(self, kind: str, event: dict[str, Any], index: int) -> None:
        if kind.endswith(".delta"):
            self._shown[index] += event["delta"]
            self.text += event["delta"] if kind == "output_text.delta" else ""
            self.reasoning += event["delta"] if kind == "reasoning_text.delta" else ""
        if kind.endswith("_text.done"):
            assert event["text"] == self._shown[index]
        if kind == "function_call_arguments.done":
            assert event["arguments"] == self._shown[index]

    def _end(self, response: dict[str, Any]) -> None:
        assert not self._open, f"left open: {self._open}"
        assert response["output"] == [self._done[index] for index in sorted(self._done)]
        self.response = response


def _said(item: dict[str, Any]) -> str:
    if item["type"] == "function_call":
        return str(item["arguments"])
    return "".join(part["text"] for part in item["content"])
