"""The requests of a message batch out of its body, `{"requests": [{…}, …]}`, one at a time and as it comes. It
finds where each begins and ends, holds one of them, and leaves what is in it to others. Pure.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from app.jobs.errors import RequestInvalid

_BEGIN: Final = re.compile(rb'\s*\{\s*"requests"\s*:\s*\[')
_FIRST: Final = re.compile(rb"\s*[{\]]")
_NEXT: Final = re.compile(rb"\s*(?:,\s*\{|\])")
_END: Final = re.compile(rb"\s*\}")
# What nests, and whole strings, in which nothing does; a quotation mark alone begins one that is still to end.
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]"]', re.DOTALL)
# White space and a name: what may stand before what is expected.
_MOST_BETWEEN: Final = 4_096


class Members:
    """Iterates over their bytes. Raises `RequestInvalid` where the body is something else, or a member has more
    than `most_bytes`.
    """

    def __init__(self, chunks: Iterable[bytes], most_bytes: int) -> None:
        self._chunks = iter(chunks)
        self._most_bytes = most_bytes
        self._held = b""
        self._at = 0
        self._count = 0

    def __iter__(self) -> Iterator[bytes]:
        self._expect(_BEGIN)
        separator = _FIRST
        while self._expect(separator).endswith(b"{"):
            yield self._member()
            self._count += 1
            separator = _NEXT
        self._expect(_END)
        while True:
            if self._held[self._at :].strip():
                raise _malformed("has something after its end")
            if not self._read_more(len(self._held)):
                return

    def _expect(self, pattern: re.Pattern[bytes]) -> bytes:
        while (found := pattern.match(self._held, self._at)) is None:
            if len(self._held) - self._at > _MOST_BETWEEN or not self._read_more(self._at):
                where = f"after {self._count} requests" if self._count else "at its beginning"
                raise _malformed(f"is something else {where}")
        self._at = found.end()
        return found[0]

    def _member(self) -> bytes:
        """The object whose brace was just read."""
        start, looked, depth = self._at - 1, self._at, 1
        while True:
            for token in _TOKEN.finditer(self._held, looked):
                kind = token[0]
                if kind == b'"':
                    break
                looked = token.end()
                depth += 1 if kind in {b"{", b"["} else -1 if kind in {b"}", b"]"} else 0
                if depth == 0:
                    self._at = looked
                    return self._within(start, looked)
            self._within(start, len(self._held))
            looked -= start
            if not self._read_more(start):
                raise _malformed(f"ends within its request {self._count}")
            start = 0

    def _within(self, start: int, end: int) -> bytes:
        if end - start > self._most_bytes:
            name = f"requests.{self._count}"
            raise RequestInvalid(name, f"'{name}' is larger than a request may be: {self._most_bytes} bytes.")
        return self._held[start:end]

    def _read_more(self, keep_from: int) -> bool:
        """Whether there was more; what is before `keep_from` is let go."""
        chunk = next(self._chunks, b"")
        self._held = self._held[keep_from:] + chunk
        self._at = max(self._at - keep_from, 0)
        return bool(chunk)


def _malformed(how: str) -> RequestInvalid:
    return RequestInvalid("requests", f'The body must be {{"requests": [{{…}}, …]}}, but it {how}.')
