"""Tokens to the text that a follower may see: stop strings are held back until they are decided, and what
Postgres or JSON cannot carry is replaced. Pure: the same tokens give the same text, however the generation
was cut into attempts.
"""

import re
from collections.abc import Sequence
from typing import Final

from workers.engine import Decoder

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
REPLACEMENT: Final = "\ufffd"


def storable(text: str) -> str:
    """The text with a mark in place of what Postgres or JSON cannot carry."""
    return text if text.isascii() and "\x00" not in text else _UNSTORABLE.sub(REPLACEMENT, text)


class TextAssembler:
    """Feed tokens in order; `is_stopped` says that a stop string has come and everything after it is void.
    Stop strings within the first `min_tokens` tokens do not count, as in vLLM.
    """

    __slots__ = ("_decoder", "_held", "_min_tokens", "_stop", "is_stopped", "tokens")

    def __init__(self, decoder: Decoder, stop: Sequence[str], min_tokens: int = 0) -> None:
        self._decoder = decoder
        self._stop = tuple(stop)
        self._min_tokens = min_tokens
        self._held = ""
        self.tokens = 0
        self.is_stopped = False

    @property
    def held(self) -> int:
        """How many characters wait for what comes next."""
        return len(self._held)

    def feed(self, token_id: int) -> str:
        """The text that may be shown now."""
        self.tokens += 1
        text = self._decoder.step(token_id)
        if not text or self.is_stopped:
            return ""
        if not text.isascii() or "\x00" in text:
            text = _UNSTORABLE.sub(REPLACEMENT, text)
        return self._release(text) if self._stop else text

    def finish(self) -> str:
        """What is left when no more tokens come."""
        if self.is_stopped:
            return ""
        rest = _UNSTORABLE.sub(REPLACEMENT, self._decoder.flush())
        shown = self._release(rest) if self._stop else rest
        if self.is_stopped:
            return shown
        held, self._held = self._held, ""
        return shown + held

    def _release(self, text: str) -> str:
        if self.tokens < self._min_tokens:
            return text
        pending = self._held + text
        found = [at for at in (pending.find(stop) for stop in self._stop) if at >= 0]
        if found:
            self.is_stopped = True
            self._held = ""
            return pending[: min(found)]
        keep = max(_overlap(pending, stop) for stop in self._stop)
        self._held = pending[len(pending) - keep :]
        return pending[: len(pending) - keep]


def _overlap(text: str, stop: str) -> int:
    """How long an end of `text` could still become `stop`."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
