"""A job's output taken apart while it comes: an engine's reader, fed with exactly the text that a follower may
see, and the parts it has found since the last piece. It knows nothing of leases, streams or the database.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from app.jobs import parts
from app.jobs.parts import Part
from workers.engine import OutputReader
from workers.output import storable


class Reading:
    """Feed each token with the text that may be shown once it has come. A token goes to the reader when all of
    its own text may be shown, so that text held back for a stop string keeps its place among the tokens.
    """

    __slots__ = ("_held", "_logprobs", "_reader", "_released", "_taken", "_waiting", "found")

    def __init__(self, reader: OutputReader) -> None:
        self._reader = reader
        self._waiting: deque[tuple[int, int, Any]] = deque()  # token, where its text ends, its logprob
        self._released = 0  # characters that may be shown
        self._taken = 0  # of those, characters that the reader has
        self._held = ""  # the difference
        self._logprobs: list[tuple[str, Any]] = []  # of tokens that no part is made of yet, with their text
        self.found: list[Part] = []

    def feed(self, token_id: int, text: str, held: int, logprob: Any = None) -> None:
        """`held`: how many characters after `text` are still held back."""
        if not held and not self._waiting:
            self._released += len(text)
            self._taken = self._released
            self._read(text, (token_id,), logprob)
            return
        self._released += len(text)
        self._held += text
        self._waiting.append((token_id, self._released + held, logprob))
        while self._waiting and self._waiting[0][1] <= self._released:
            self._read_next()

    def finish(self, rest: str) -> None:
        """No more tokens come; `rest` is what was held back and may be shown after all."""
        self._released += len(rest)
        self._held += rest
        while self._waiting and (self._held or self._waiting[0][1] <= self._released):
            self._read_next()
        if self._held:
            self._read(self._held, (), None)
            self._held = ""
        self._keep(self._reader.finish())

    def take(self) -> list[Part]:
        """What was found since the last time."""
        found, self.found = self.found, []
        return found

    def _read_next(self) -> None:
        """After a stop the text of a token may be cut short."""
        token_id, end, logprob = self._waiting.popleft()
        text = self._held[: end - self._taken]
        self._held = self._held[len(text) :]
        self._taken += len(text)
        self._read(text, (token_id,), logprob)

    def _read(self, text: str, token_ids: Sequence[int], logprob: Any) -> None:
        if logprob is not None and (text or not _is_whole(logprob["bytes"])):
            self._logprobs.append((text, logprob))
        self._keep(self._reader.feed(text, token_ids))

    def _keep(self, new: Sequence[Part]) -> None:
        for part in new:
            if self._logprobs:
                self._give_logprobs(part)
            append(self.found, part)

    def _give_logprobs(self, part: Part) -> None:
        """What is said has the logprobs of its tokens; those of markup and of other parts go."""
        if part["type"] != parts.TEXT:
            self._logprobs = []
            return
        end = sum(len(text) for text, _ in self._logprobs) - self._reader.held
        begin, at, mine = end - len(part["text"]), 0, []
        while self._logprobs and at < end:
            text, logprob = self._logprobs.pop(0)
            if at + len(text) > begin or (not text and at == begin):
                mine.append(logprob)
            at += len(text)
        if mine:
            part["logprobs"] = mine


def _is_whole(token: Sequence[int]) -> bool:
    """Whether bytes are whole characters: such a token that shows nothing is a mark of the model's."""
    try:
        bytes(token).decode()
    except UnicodeDecodeError:
        return False
    return True


def append(found: list[Part], part: Part) -> None:
    """Add a part, as one with the last where both are of one kind."""
    part = {name: storable(value) if isinstance(value, str) else value for name, value in part.items()}
    last = found[-1] if found else None
    if last is None or not _is_continued(last, part):
        found.append(part)
        return
    for name, value in part.items():
        if name in {"text", "arguments", "tokens", "logprobs"}:
            last[name] = last[name] + value if name in last else value


def _is_continued(last: Part, part: Part) -> bool:
    if last["type"] != part["type"]:
        return False
    if part["type"] != parts.TOOL_CALL:
        return True
    return "arguments" in last and "arguments" in part and last["index"] == part["index"]


def is_same(one: Iterable[Part], other: Iterable[Part]) -> bool:
    """Whether two sequences of parts say the same, however they were cut."""
    return _joined(one) == _joined(other)


def _joined(given: Iterable[Part]) -> list[Part]:
    joined: list[Part] = []
    for part in _without_logprobs(given):
        append(joined, part)
    return joined


def _without_logprobs(given: Iterable[Part]) -> Iterator[Part]:
    for part in given:
        yield {name: value for name, value in part.items() if name != "logprobs"}
