"""Jobs and their logs, made up as a worker would leave them, for what calls say of them."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from hypothesis import strategies as st

from app.jobs import parts as part
from app.jobs.log import REWIND, Output
from app.jobs.states import Status
from app.jobs.tables import Job, JobSegment
from app.streams import frames
from config.queues import Tier

CREATED_AT = datetime(2026, 9, 1, tzinfo=UTC)


def job(index=0, **columns):
    """Completed, unless told otherwise. `request` is added to a plain one."""
    request = {"input": "Say hi", "logprobs": None, **columns.pop("request", {})}
    values = {
        "id": f"job_{index:032x}",
        "model": "m",
        "tier": Tier.INTERACTIVE,
        "status": Status.COMPLETED,
        "created_at": CREATED_AT,
        "echo": {"n": 1},
        "output_start_seq": 0,
        "input_tokens": 7,
        "cached_tokens": 0,
        "output_tokens": 3,
    }
    return Job(**{**values, "request": request, **columns})


@dataclass
class Piece:
    """One sequence number of output: the model's own words, what they mean, the logprobs of its tokens."""

    raw: str
    parts: list[dict[str, Any]] | None = None
    logprobs: list[dict[str, Any]] | None = None


@dataclass
class Log:
    """A job and its output. Output starts at sequence number 3, after two changes of status."""

    job: Job
    pieces: list[Piece] = field(default_factory=list)

    FIRST_SEQ = 3

    @property
    def offsets(self):
        return list(accumulate((len(piece.raw) for piece in self.pieces), initial=0))

    def delta(self, index, seq=None):
        """As it goes out live."""
        piece, seq = self.pieces[index], self.FIRST_SEQ + index if seq is None else seq
        return frames.delta(seq, seq, self.offsets[index], piece.raw, piece.logprobs, piece.parts)

    @property
    def live(self):
        return [*self.opening, *(self.delta(index) for index in range(len(self.pieces))), self.ending()]

    @property
    def opening(self):
        return [frames.encode(seq, seq, kind, {}) for seq, kind in ((1, "job.queued"), (2, "job.in_progress"))]

    def ending(self, seq=None):
        ended = self.job
        error = {"code": ended.error_code, "message": ended.error_message} if ended.error_code else None
        used = {
            "input_tokens": ended.input_tokens,
            "input_tokens_details": {"cached_tokens": ended.cached_tokens},
            "output_tokens": ended.output_tokens,
            "total_tokens": ended.input_tokens + ended.output_tokens,
        }
        seq = self.FIRST_SEQ + len(self.pieces) if seq is None else seq
        return frames.encode(seq, seq, ended.status.event_type, {"usage": used, "error": error})

    def stored(self, sizes):
        """The same log read back from segments of these sizes, which repeat."""
        found, index = [*self.opening], 0
        while index < len(self.pieces):
            size = sizes[len(found) % len(sizes)]
            found += frames.pieces_of(self._segment(index, self.pieces[index : index + size]))
            index += size
        return [*found, self.ending()]

    def _segment(self, index, pieces):
        return JobSegment(
            first_seq=self.FIRST_SEQ + index,
            seq=self.FIRST_SEQ + index + len(pieces) - 1,
            char_offset=self.offsets[index],
            text="".join(piece.raw for piece in pieces),
            ends=list(accumulate(len(piece.raw) for piece in pieces)),
            logprobs=[piece.logprobs for piece in pieces] if pieces[0].logprobs is not None else None,
            parts=[piece.parts for piece in pieces] if pieces[0].parts is not None else None,
        )

    @property
    def output(self):
        """As `app.jobs.log.read_output` puts it together."""
        has_parts = any(piece.parts is not None for piece in self.pieces)
        return Output(
            "".join(piece.raw for piece in self.pieces),
            (),
            tuple(entry for piece in self.pieces for entry in piece.logprobs or ()),
            tuple(one for piece in self.pieces for one in piece.parts or ()) if has_parts else None,
        )


def rewind(seq, offset):
    return frames.encode(seq, seq, REWIND, {"offset": offset})


def entry(token="a", logprob=-0.5, top=()):
    def one(text, value):
        return {"token": text, "logprob": value, "bytes": list(text.encode())}

    return {**one(token, logprob), "top_logprobs": [one(text, value) for text, value in top]}


WORDS = st.text(min_size=1, max_size=5)
ENTRIES = st.builds(
    entry,
    WORDS,
    st.floats(-20, 0),
    st.lists(st.tuples(WORDS, st.floats(-20, 0)), max_size=2),
)
ENDINGS = st.sampled_from(
    [
        {"status": Status.COMPLETED},
        {"status": Status.INCOMPLETE, "incomplete_reason": "max_output_tokens"},
        {"status": Status.INCOMPLETE, "incomplete_reason": "total_timeout"},
        {"status": Status.CANCELLED},
    ]
)
COUNTS = st.fixed_dictionaries(
    {name: st.integers(0, 1000) for name in ("input_tokens", "cached_tokens", "output_tokens")}
)


@st.composite
def plain_pieces(draw, *, logprobs=False):
    texts = draw(st.lists(WORDS, max_size=8))
    return [Piece(text, None, draw(st.lists(ENTRIES, max_size=2)) if logprobs else None) for text in texts]


@st.composite
def parsed_pieces(draw, *, logprobs=False):
    """Reasoning, text and calls, cut up in any way; the raw words are longer than what they mean."""
    said = [part.reasoning(text, draw(st.integers(1, 3))) for text in draw(st.lists(WORDS, max_size=3))]
    for text in draw(st.lists(WORDS, max_size=4)):
        entries = draw(st.lists(ENTRIES, min_size=1, max_size=2)) if logprobs else None
        said.append({**part.text(text), **({"logprobs": entries} if entries else {})})
    for index in range(draw(st.integers(0, 3))):
        said.append(part.call(index, f"call_{index}", draw(st.sampled_from(["look", "find"]))))
        said += [part.arguments(index, text) for text in draw(st.lists(WORDS, max_size=3))]
    pieces = []
    while said:
        size = draw(st.integers(0, 3))
        mine, said = said[:size], said[size:]
        raw = "<" + "".join(one.get("text") or one.get("arguments") or "" for one in mine) + ">"
        pieces.append(Piece(raw, mine, [] if logprobs else None))
    return pieces


@st.composite
def logs(draw, pieces, count, **columns):
    """So many choices of one call."""
    return [
        Log(job(index, **{**draw(ENDINGS), **draw(COUNTS), **columns}), draw(pieces)) for index in range(count)
    ]


@st.composite
def interleaved(draw, *streams):
    """`(index, frame)` of all of them, each in its own order."""
    left = {index: list(stream) for index, stream in enumerate(streams)}
    order = []
    while left:
        index = draw(st.sampled_from(sorted(left)))
        order.append((index, left[index].pop(0)))
        if not left[index]:
            del left[index]
    return order
