"""The lines of a file, out of chunks of bytes, whatever their sizes. Only a newline ends a line: what other
programs take for one may stand in a text. It knows no JSON, and holds one line at a time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Line:
    """`number` counts from 1, lines that say nothing included. Of one that is too long there is no `raw`."""

    number: int
    raw: bytes
    is_too_long: bool = False


def lines(chunks: Iterable[bytes], max_bytes: int) -> Iterator[Line]:
    """Those that say something."""
    for number, raw in enumerate(_split(chunks, max_bytes), 1):
        if raw is None:
            yield Line(number, b"", is_too_long=True)
            continue
        said = raw.removeprefix(_BYTE_ORDER_MARK) if number == 1 else raw
        if said and not said.isspace():
            yield Line(number, said.removesuffix(b"\r"))


def _split(chunks: Iterable[bytes], max_bytes: int) -> Iterator[bytes | None]:
    """None stands for a line that is too long."""
    held = bytearray()
    is_too_long = False
    for chunk in chunks:
        *ends, begin = chunk.split(b"\n")
        for end in ends:
            raw = bytes(held + end) if held else end
            yield None if is_too_long or len(raw) > max_bytes else raw
            held.clear()
            is_too_long = False
        held += begin
        if is_too_long or len(held) > max_bytes:
            is_too_long = True
            held.clear()
    if held or is_too_long:
        yield None if is_too_long else bytes(held)
