"""A follower as strict as a client may be: every sequence number once and in order, every delta where the text
so far ends.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson


@dataclass
class StrictFollower:
    """`text` is what a reader would see; `rewinds` where it was cut back."""

    cursor: int = 0
    text: str = ""
    events: list[str] = field(default_factory=list)
    rewinds: list[int] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)
    notices: list[dict[str, Any]] = field(default_factory=list)  # what is not of the log: it has no number

    def take(self, frame: dict[str, Any]) -> None:
        if "seq" not in frame:
            self.notices.append(frame)
            return
        first = frame.get("first_seq", frame["seq"])
        assert first == self.cursor + 1, f"expected {self.cursor + 1}, got {frame}"
        self.cursor = frame["seq"]
        self.last = frame
        match frame["type"]:
            case "output.delta":
                assert frame["offset"] == len(self.text), f"at {len(self.text)}, got {frame}"
                self.text += frame["delta"]
            case "output.rewind":
                assert frame["offset"] <= len(self.text)
                self.rewinds.append(frame["offset"])
                self.text = self.text[: frame["offset"]]
            case kind:
                self.events.append(kind)

    def take_all(self, bodies: Iterable[bytes]) -> "StrictFollower":
        for body in bodies:
            self.take(orjson.loads(body))
        return self
