"""What a follower receives: one JSON object a frame, the same bytes over SSE, WebSocket and long-poll. Pure.

A frame covers the sequence numbers `first_seq..seq` of its job's log (`first_seq` is left out of the JSON
where it equals `seq`). A follower that has seen a frame asks to go on after its `seq`. Offsets are in
characters (Unicode code points) of the output text.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from app.jobs.log import REWIND
from app.jobs.states import TERMINAL_EVENT_TYPES
from app.jobs.tables import JobEvent, JobSegment

DELTA: Final = "output.delta"


@dataclass(slots=True)  # not frozen: that costs, and one is made for every token
class Frame:
    first_seq: int
    seq: int
    type: str
    body: bytes

    @property
    def is_last(self) -> bool:
        return self.type in TERMINAL_EVENT_TYPES


def encode(first_seq: int, seq: int, kind: str, fields: dict[str, Any]) -> Frame:
    span = {} if first_seq == seq else {"first_seq": first_seq}
    return Frame(first_seq, seq, kind, to_json({"type": kind, "seq": seq, **span, **fields}))


def decode(body: bytes) -> Frame:
    """A frame from its JSON. Raises `ValueError` or `KeyError` on anything else."""
    fields = orjson.loads(body)
    return Frame(fields.get("first_seq", fields["seq"]), fields["seq"], fields["type"], body)


def delta(
    first_seq: int,
    seq: int,
    offset: int,
    text: str,
    logprobs: list[Any] | None = None,
    parts: list[Any] | None = None,
) -> Frame:
    if logprobs is None and parts is None and first_seq == seq:
        body = b'{"type":"output.delta","seq":%d,"offset":%d,"delta":%b}' % (seq, offset, to_json(text))
        return Frame(seq, seq, DELTA, body)
    fields: dict[str, Any] = {"offset": offset, "delta": text}
    if logprobs is not None:
        fields["logprobs"] = logprobs
    if parts is not None:
        fields["parts"] = parts
    return encode(first_seq, seq, DELTA, fields)


def of_row(row: JobEvent | JobSegment, cursor: int) -> Iterator[Frame]:
    """The frames of a stored row for a follower that has seen everything up to `cursor`."""
    if isinstance(row, JobSegment):
        yield _rest_of_segment(row, cursor)
        return
    if row.first_seq <= cursor < row.seq - 1:
        # This follower was shown output that a lost worker never stored, and that the event voids.
        yield encode(cursor + 1, row.seq - 1, REWIND, {"offset": row.data["output_offset"]})
        cursor = row.seq - 1
    yield of_event(row, max(row.first_seq, cursor + 1))


def pieces_of_row(row: JobEvent | JobSegment, cursor: int) -> Iterator[Frame]:
    """As `of_row`, but output one frame a sequence number, as it went out live: for who must see the same at
    any age of the job.
    """
    if isinstance(row, JobSegment):
        yield from (frame for frame in pieces_of(row) if frame.seq > cursor)
    else:
        yield from of_row(row, cursor)


def of_event(event: JobEvent, first_seq: int | None = None) -> Frame:
    status = event.type.removeprefix("job.")
    named = {"status": status} if status != event.type else {}
    return encode(
        event.first_seq if first_seq is None else first_seq,
        event.seq,
        event.type,
        {"job_id": event.job_id, "at": event.created_at, **named, **event.data},
    )


def _rest_of_segment(segment: JobSegment, cursor: int) -> Frame:
    """A segment without what lies at or before the cursor."""
    skip = max(0, cursor + 1 - segment.first_seq)
    cut = segment.ends[skip - 1] if skip else 0
    return delta(
        segment.first_seq + skip,
        segment.seq,
        segment.char_offset + cut,
        segment.text[cut:],
        _flat(segment.logprobs, skip),
        _flat(segment.parts, skip),
    )


def pieces_of(segment: JobSegment) -> Iterator[Frame]:
    """The frames as they went out live, one a sequence number."""
    start = 0
    for index, end in enumerate(segment.ends):
        seq = segment.first_seq + index
        logprobs = None if segment.logprobs is None else segment.logprobs[index]
        parts = None if segment.parts is None else segment.parts[index]
        yield delta(seq, seq, segment.char_offset + start, segment.text[start:end], logprobs, parts)
        start = end


def _flat(lists: list[Any] | None, skip: int) -> list[Any] | None:
    return None if lists is None else [entry for one in lists[skip:] for entry in one]


# Line separators that JSON allows raw and that cut a line in common clients (str.splitlines, httpx).
_LINE_BREAKS: Final = {c: f"\\u{ord(c):04x}".encode() for c in "\u2028\u2029\u0085"}


def to_json(fields: Any) -> bytes:
    """JSON in one line, however a client cuts lines."""
    # A copy: orjson's own bytes keep the kilobytes of its buffer for as long as they live.
    body = bytes(memoryview(orjson.dumps(fields, option=orjson.OPT_UTC_Z)))
    if body.isascii():
        return body
    for char, escaped in _LINE_BREAKS.items():
        raw = char.encode()
        if raw in body:
            body = body.replace(raw, escaped)
    return body
