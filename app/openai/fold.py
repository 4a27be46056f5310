"""Parts of output put together: into the message that they make, and against what a follower has been shown
when a job's output is rewound and comes again. Pure; it knows no surface.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.jobs import parts as parts_of_output
from app.jobs.log import Output
from app.jobs.parts import REASONING, TEXT, TOOL_CALL, Part
from app.openai.errors import OutputReplaced

Logprobs = list[dict[str, Any]]


@dataclass(slots=True)
class Call:
    """A call of a function; `arguments` is JSON as the model wrote it, so far."""

    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Folded:
    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    content_logprobs: Logprobs = field(default_factory=list)
    reasoning_tokens: int = 0


def fold(parts: Iterable[Part] | str) -> Folded:
    """The message that `parts`, or a text that has none, make."""
    made = Folded()
    content, reasoning = [], []
    calls: dict[int, Call] = {}
    for part in [parts_of_output.text(parts)] if isinstance(parts, str) else parts:
        match part["type"]:
            case "text":
                content.append(part["text"])
                made.content_logprobs += part.get("logprobs") or ()
            case "reasoning":
                reasoning.append(part["text"])
                made.reasoning_tokens += part.get("tokens", 0)
            case "tool_call":
                call = calls.setdefault(part["index"], Call(part.get("id", ""), part.get("name", "")))
                call.arguments += part.get("arguments", "")
    made.content, made.reasoning, made.calls = "".join(content), "".join(reasoning), list(calls.values())
    return made


def parts_of_job(output: Output) -> list[Part]:
    """A job's output so far as parts, logprobs of plain text among them."""
    if output.parts is not None:
        return list(output.parts)
    return _plain(output.text, list(output.logprobs) or None)


def parts_of(frame_fields: Mapping[str, Any]) -> list[Part]:
    """The parts of an `output.delta` frame, from its JSON; none where a piece shows nothing yet."""
    parts: list[Part] | None = frame_fields.get("parts")
    return _plain(frame_fields["delta"], frame_fields.get("logprobs")) if parts is None else parts


def _plain(text: str, logprobs: Logprobs | None) -> list[Part]:
    if not text and not logprobs:
        return []
    part = parts_of_output.text(text)
    return [{**part, "logprobs": logprobs}] if logprobs else [part]


# A part's place in the output, and the text that it adds there. A call's beginning counts as one character.
_Key = tuple[Any, ...]
_BEGINNING = "\0"


def _pieces(part: Part) -> list[tuple[_Key, str]]:
    if part["type"] != TOOL_CALL:
        return [(("text",) if part["type"] == TEXT else ("reasoning",), part["text"])]
    index = part["index"]
    pieces: list[tuple[_Key, str]] = []
    if "id" in part:
        pieces.append((("call", index, part["id"], part["name"]), _BEGINNING))
    if part.get("arguments"):
        pieces.append((("arguments", index), part["arguments"]))
    return pieces


def width(part: Part) -> int:
    """How many positions a part takes: its characters, and one for the beginning of a call."""
    return sum(len(text) for _, text in _pieces(part))


@dataclass(slots=True)
class _Run:
    """Neighbouring text of one key on the tape, from the position `start` on."""

    key: _Key
    start: int
    pieces: list[str]
    length: int = 0

    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""


@dataclass(slots=True)
class _Stretch:
    """Raw output from `raw` on gave the tape from `at` on; character by character while `is_even`."""

    raw: int
    raw_end: int
    at: int
    is_even: bool


class Shown:
    """What a follower has been shown. After a rewind, output that comes again is compared with it: what is
    equal is swallowed, what goes beyond is to be shown.
    """

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._end = 0  # of the tape
        self._at = 0  # where on the tape the output stands; behind its end after a rewind
        self._stretches: list[_Stretch] = []
        self._thoughts: list[tuple[int, int]] = []  # where reasoning ends, and its tokens up to there

    @property
    def end(self) -> int:
        """How much has been shown, in positions: see `width`."""
        return self._end

    @property
    def at(self) -> int:
        """Where the output stands; behind the end until what was rewound has come again."""
        return self._at

    @property
    def reasoning_tokens(self) -> int:
        """Of the output as it stands, shown or swallowed."""
        return self._thoughts[-1][1] if self._thoughts else 0

    def show(self, frame_fields: Mapping[str, Any]) -> list[Part]:
        """`accept` for an `output.delta` frame, from its JSON."""
        return self.accept(frame_fields["offset"], parts_of(frame_fields), len(frame_fields["delta"]))

    def accept(self, offset: int, parts: Iterable[Part], raw_chars: int) -> list[Part]:
        """The parts of `raw_chars` of raw output at `offset` that are still to be shown, neighbours of a kind
        as one. Raises `OutputReplaced`.
        """
        began = self._at
        fresh: list[Part] = []
        for part in parts:
            for shown in self._take(part):
                if fresh and _is_same_kind(fresh[-1], shown):
                    fresh[-1] = _joined(fresh[-1], shown)
                else:
                    fresh.append(shown)
            if part["type"] == REASONING:
                self._thoughts.append((self._at, self.reasoning_tokens + part.get("tokens", 0)))
        self._note(offset, raw_chars, began)
        return fresh

    def rewind(self, offset: int) -> None:
        """Output from `offset` on, in characters of raw output, is void; it or something else comes again."""
        at = self._position(offset)
        while self._stretches and self._stretches[-1].raw >= offset:
            self._stretches.pop()
        if self._stretches and self._stretches[-1].raw_end > offset:
            self._stretches[-1].raw_end = offset
        while self._thoughts and self._thoughts[-1][0] > at:
            self._thoughts.pop()
        self._at = at

    def finish(self) -> None:
        """The output ends here. Raises `OutputReplaced` if more had been shown."""
        if self._at < self._end:
            raise OutputReplaced

    def _position(self, offset: int) -> int:
        """Where raw output at `offset` stands on the tape."""
        after = self._at
        for stretch in reversed(self._stretches):
            if stretch.raw_end <= offset and stretch.raw < offset:
                break
            if stretch.raw < offset:
                return stretch.at + (offset - stretch.raw if stretch.is_even else 0)
            after = stretch.at
        return after

    def _note(self, offset: int, raw_chars: int, began: int) -> None:
        is_even = raw_chars == self._at - began
        last = self._stretches[-1] if self._stretches else None
        if last and is_even and last.is_even and last.raw_end == offset:
            last.raw_end += raw_chars
        elif raw_chars or not is_even:
            self._stretches.append(_Stretch(offset, offset + raw_chars, began, is_even))

    def _take(self, part: Part) -> Iterable[Part]:
        """What of `part` is new."""
        for key, text in _pieces(part):
            new = self._swallow(key, text)
            if new or (not text and self._at == self._end):
                self._append(key, new)
                yield _only(part, key, new, is_whole=len(new) == len(text))

    def _swallow(self, key: _Key, text: str) -> str:
        """Compare with what was shown; returns what lies beyond it."""
        while text and self._at < self._end:
            run = self._runs[bisect_right(self._runs, self._at, key=lambda run: run.start) - 1]
            skip = self._at - run.start
            seen = run.text()[skip : skip + len(text)]
            if run.key != key or not text.startswith(seen):
                raise OutputReplaced
            self._at += len(seen)
            text = text[len(seen) :]
        return text

    def _append(self, key: _Key, text: str) -> None:
        if not text:
            return
        if not self._runs or self._runs[-1].key != key:
            self._runs.append(_Run(key, self._end, []))
        run = self._runs[-1]
        run.pieces.append(text)
        run.length += len(text)
        self._end += len(text)
        self._at = self._end


def _only(part: Part, key: _Key, text: str, *, is_whole: bool) -> Part:
    """The `part` cut to what is new of it."""
    if key[0] == "call":
        return parts_of_output.call(part["index"], part["id"], part["name"])
    if key[0] == "arguments":
        return parts_of_output.arguments(part["index"], text)
    if key[0] == "reasoning":
        return parts_of_output.reasoning(text, part.get("tokens", 0) if is_whole else 0)
    # Of a token whose text was shown in part, the logprobs were shown, too.
    logprobs = part.get("logprobs") if is_whole else None
    return {**parts_of_output.text(text), **({"logprobs": logprobs} if logprobs else {})}


def _is_same_kind(one: Part, other: Part) -> bool:
    if one["type"] != other["type"]:
        return False
    return one["type"] != TOOL_CALL or (one["index"] == other["index"] and "arguments" in other)


def _joined(one: Part, other: Part) -> Part:
    if one["type"] == TOOL_CALL:
        return {**one, "arguments": one.get("arguments", "") + other["arguments"]}
    joined = {**one, **other, "text": one["text"] + other["text"]}
    if "tokens" in other:
        joined["tokens"] = one.get("tokens", 0) + other["tokens"]
    if one.get("logprobs") and other.get("logprobs"):
        joined["logprobs"] = [*one["logprobs"], *other["logprobs"]]
    return joined
