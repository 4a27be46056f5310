"""Reads the simulated engine's markup: reasoning and calls, as `app.tokens.simulated` writes them. It works on
text; tokens are only counted.
"""

import re
from collections.abc import Callable, Sequence

from app.jobs import parts
from app.jobs.parts import Part
from app.tokens.simulated import CALL, CALL_END, THINK, THINK_END
from workers.engine.calls import tool_call_id

_CALL_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"arguments"\s*:\s*(?=\{)')


class MarkupReader:
    """An `OutputReader`. Where the model may make one call only, its further ones are not read; without `calls`
    it makes none, and what looks like one is text.
    """

    def __init__(self, job_id: str, *, calls: bool, is_parallel: bool = True) -> None:
        self._job_id = job_id
        self._opening = {THINK: self._think} | ({CALL: self._head} if calls else {})
        self._is_parallel = is_parallel
        self._read: Callable[[], bool] = self._say
        self._buffer = ""
        self._found: list[Part] = []
        self._index = -1
        self._depth, self._is_string, self._is_escaped = 0, False, False
        self._tokens = 0  # of reasoning that is not told yet
        self._is_after_call = False

    @property
    def held(self) -> int:
        return len(self._buffer)

    def feed(self, text: str, token_ids: Sequence[int]) -> list[Part]:
        self._buffer += text
        self._tokens += len(token_ids)
        while self._read():
            pass
        found, self._found = self._found, []
        return found

    def finish(self) -> list[Part]:
        rest, self._buffer = self._buffer, ""
        if self._read == self._head:
            rest = CALL + rest
        if rest and self._read == self._think:
            return [parts.reasoning(rest, self._tokens)]
        return [parts.text(rest)] if rest and self._read in {self._say, self._head} else []

    # Each reads what it can of the buffer, and says whether another is to go on.

    def _say(self) -> bool:
        if self._is_after_call:
            self._buffer = self._buffer.lstrip()
        said, tag = self._until(*self._opening)
        if said:
            self._found.append(parts.text(said))
            self._is_after_call = False
        if tag is None:
            return False
        self._go_on_with(self._opening[tag])
        return True

    def _think(self) -> bool:
        thought, tag = self._until(THINK_END)
        if thought:
            self._found.append(parts.reasoning(thought, self._tokens))
            self._tokens = 0
        if tag is None:
            return False
        self._go_on_with(self._say)
        return True

    def _head(self) -> bool:
        """Name and colon. What turns out to be no call was text."""
        head = _CALL_HEAD.match(self._buffer)
        if head is not None:
            self._buffer = self._buffer[head.end() :]
            self._index += 1
            if self._is_told:
                call_id = tool_call_id(self._job_id, self._index)
                self._found.append(parts.call(self._index, call_id, head[1]))
            self._go_on_with(self._arguments)
            return True
        if CALL_END not in self._buffer:
            return False
        written, _ = self._until(CALL_END)
        self._found.append(parts.text(CALL + written + CALL_END))
        self._go_on_with(self._say)
        return True

    def _arguments(self) -> bool:
        """An object, to its closing brace."""
        for at, char in enumerate(self._buffer):
            self._walk(char)
            if not self._depth:
                self._tell(at + 1)
                self._go_on_with(self._tail)
                return True
        self._tell(len(self._buffer))
        return False

    def _tail(self) -> bool:
        _, tag = self._until(CALL_END)
        if tag is None:
            return False
        self._is_after_call = True
        self._go_on_with(self._say)
        return True

    def _walk(self, char: str) -> None:
        if self._is_string:
            self._is_string = self._is_escaped or char != '"'
            self._is_escaped = char == "\\" and not self._is_escaped
        elif char == '"':
            self._is_string = True
        else:
            self._depth += (char in "{[") - (char in "}]")

    def _tell(self, end: int) -> None:
        if end and self._is_told:
            self._found.append(parts.arguments(self._index, self._buffer[:end]))
        self._buffer = self._buffer[end:]

    @property
    def _is_told(self) -> bool:
        return self._is_parallel or self._index == 0

    def _go_on_with(self, reading: Callable[[], bool]) -> None:
        self._read = reading
        self._tokens = 0

    def _until(self, *tags: str) -> tuple[str, str | None]:
        """The text before the first of the tags, and which it is; what may become one stays."""
        found = [(at, tag) for tag in tags if (at := self._buffer.find(tag)) >= 0]
        if found:
            at, tag = min(found)
            text, self._buffer = self._buffer[:at], self._buffer[at + len(tag) :]
            return text, tag
        keep = max(_overlap(self._buffer, tag) for tag in tags)
        end = len(self._buffer) - keep
        text, self._buffer = self._buffer[:end], self._buffer[end:]
        return text, None


def _overlap(text: str, tag: str) -> int:
    """How long an end of `text` could still become `tag`."""
    return next((size for size in range(min(len(text), len(tag) - 1), 0, -1) if text.endswith(tag[:size])), 0)
