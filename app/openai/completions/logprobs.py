"""Logprobs in the form of OpenAI's first API: four lists, one entry a token."""

from collections.abc import Sequence
from typing import Any

from app.jobs.tables import Job


class Offsets:
    """Where each token starts in the text of a choice, as its tokens come."""

    def __init__(self, job: Job) -> None:
        self._is_asked = job.request.get("logprobs") is not None
        self._chars = 0

    def of(self, entries: Sequence[Any]) -> dict[str, Any] | None:
        """None where none were asked for."""
        if not self._is_asked:
            return None
        return {
            "tokens": [entry["token"] for entry in entries],
            "token_logprobs": [entry["logprob"] for entry in entries],
            "top_logprobs": [_top(entry) for entry in entries],
            "text_offset": [self._next(bytes(entry["bytes"])) for entry in entries],
        }

    def _next(self, token: bytes) -> int:
        """A token may end within a character: the next then starts in that one."""
        starts_within = bool(token) and _is_continuation(token[0])
        offset = self._chars - starts_within
        self._chars += sum(not _is_continuation(byte) for byte in token)
        return max(0, offset)


def _is_continuation(byte: int) -> bool:
    """Of a character whose first byte came before (UTF-8)."""
    return byte & 0xC0 == 0x80


def _top(entry: dict[str, Any]) -> dict[str, float]:
    """The token itself is always among them. Of tokens that read alike the likeliest stands."""
    found: dict[str, float] = {}
    for other in [*entry["top_logprobs"], entry]:
        found.setdefault(other["token"], other["logprob"])
    return found
