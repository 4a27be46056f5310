"""Random logs of jobs, as a worker and its rescuers write them: what each reader of them is fed."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from hypothesis import strategies as st

from app.jobs import parts as parts_of
from app.jobs.log import UNSTORED_SEQ_LIMIT, Output
from app.jobs.requests import JobRequest
from app.jobs.states import Status
from app.jobs.tables import Job, JobEvent, JobSegment
from app.streams import frames

AT = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
JOB_ID = "job_0123456789abcdef0123456789abcdef"
USAGE = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 3},
    "output_tokens": 9,
    "total_tokens": 16,
}


def make_job(status=Status.QUEUED, echo=None, **fields):
    request = {"model": "m", "input": "Hi", **fields.pop("request", {})}
    return Job(
        id=JOB_ID,
        model="m",
        status=status,
        request=JobRequest(**request).model_dump(mode="json", by_alias=True),
        echo=echo or {},
        labels={},
        created_at=AT,
        **{
            "output_start_seq": 0,
            "input_tokens": 7,
            "cached_tokens": 3,
            "output_tokens": 9,
            "error_code": "engine_error" if status is Status.FAILED else None,
            "error_message": "It broke." if status is Status.FAILED else None,
            "incomplete_reason": "max_output_tokens" if status is Status.INCOMPLETE else None,
            "finished_at": AT if status.is_terminal else None,
            **fields,
        },
    )


def ended(status):
    return {
        "attempt": 1,
        "usage": USAGE,
        "error": {"code": "engine_error", "message": "It broke."} if status is Status.FAILED else None,
        "incomplete_details": {"reason": "max_output_tokens"} if status is Status.INCOMPLETE else None,
    }


@dataclass
class Log:
    """`rows` are what is stored; `live` is what one who follows from the first moment receives."""

    rows: list = field(default_factory=list)
    live: list = field(default_factory=list)
    status: Status = Status.QUEUED
    output_start_seq: int = 0
    seq: int = 0  # the last stored
    shown_seq: int = 0  # the last shown
    stored_raw: int = 0

    def event(self, kind, data=None, *, void=False):
        seq = self.seq + 1 + (UNSTORED_SEQ_LIMIT if void else 0)
        row = JobEvent(
            job_id=JOB_ID,
            first_seq=self.seq + 1,
            seq=seq,
            type=kind,
            data=data or {"attempt": 1},
            created_at=AT,
        )
        self.rows.append(row)
        self.live += frames.of_row(row, self.shown_seq)
        self.seq = self.shown_seq = seq

    def output(self, pieces, stored):
        """Pieces are `(raw, parts or None, logprobs or None)`; those from `stored` on are shown and lost."""
        offset = self.stored_raw
        for index, (raw, parts, logprobs) in enumerate(pieces):
            seq = self.seq + 1 + index
            self.live.append(frames.delta(seq, seq, offset, raw, logprobs, parts))
            offset += len(raw)
            self.shown_seq = seq
        kept = pieces[:stored]
        if kept:
            ends, end = [], 0
            for raw, _, _ in kept:
                end += len(raw)
                ends.append(end)
            plain = all(parts is None for _, parts, _ in kept)
            bare = all(logprobs is None for _, _, logprobs in kept)
            self.rows.append(
                JobSegment(
                    job_id=JOB_ID,
                    first_seq=self.seq + 1,
                    seq=self.seq + len(kept),
                    char_offset=self.stored_raw,
                    text="".join(raw for raw, _, _ in kept),
                    ends=ends,
                    token_ids=[0] * len(kept),
                    parts=None if plain else [parts for _, parts, _ in kept],
                    logprobs=None if bare else [logprobs or [] for _, _, logprobs in kept],
                )
            )
            self.seq += len(kept)
            self.stored_raw += end

    @property
    def stored(self):
        """What one who comes later and reads from the start receives."""
        found = []
        for row in self.rows:
            found += (
                frames.pieces_of(row) if isinstance(row, JobSegment) else frames.of_row(row, row.first_seq - 1)
            )
        return found

    @property
    def job(self):
        return make_job(self.status, output_start_seq=self.output_start_seq)

    @property
    def output_now(self):
        rows = [r for r in self.rows if isinstance(r, JobSegment) and r.first_seq > self.output_start_seq]
        parts = None
        if any(row.parts is not None for row in rows):
            parts = tuple(part for row in rows for one in row.parts or () for part in one)
        return Output(
            "".join(row.text for row in rows),
            tuple(token for row in rows for token in row.token_ids),
            tuple(entry for row in rows for one in row.logprobs or () for entry in one),
            parts,
        )


def logprob(token):
    entry = {"token": token, "logprob": -0.5, "bytes": list(token.encode())}
    return {**entry, "top_logprobs": [entry]}


TEXT = st.text(alphabet="ab é", min_size=1, max_size=3)


@st.composite
def plain_pieces(draw):
    # Where output is cut right at a token without text, an offset cannot say on which side of it.
    has_logprobs = draw(st.booleans())
    texts = draw(st.lists(st.text(alphabet="ab é", min_size=int(has_logprobs), max_size=3), max_size=10))
    return [(text, None, [logprob(text)] if has_logprobs else None) for text in texts]


@st.composite
def parsed_pieces(draw):
    """What a reader of a model's markup makes of it: pieces with several parts, or with none yet."""
    flow = []
    calls = 0
    for kind in draw(st.lists(st.sampled_from(["text", "reasoning", "call"]), max_size=5)):
        texts = draw(st.lists(TEXT, min_size=1, max_size=4))
        if kind == "text":
            flow += [{**parts_of.text(text), "logprobs": [logprob(text)]} for text in texts]
        elif kind == "reasoning":
            flow += [parts_of.reasoning(text, 1) for text in texts]
        else:
            flow.append(parts_of.call(calls, f"call_{calls}", f"f{calls}"))
            flow += [parts_of.arguments(calls, text) for text in texts if draw(st.booleans())]
            calls += 1
    pieces = []
    while flow:
        size = draw(st.integers(0, 3))
        parts, flow = flow[:size], flow[size:]
        # Only the end shows something without anything new to read: what was held back until then.
        raw = draw(st.text(alphabet="<x", min_size=1 if parts and flow else 0, max_size=3))
        pieces.append((raw, parts, None))
    return pieces


@st.composite
def logs(draw):
    """A deterministic model's output through attempts that store a part of it, lose a part, or begin again."""
    log = Log()
    log.event("job.queued", {"attempt": 0})
    pieces = draw(plain_pieces() | parsed_pieces())
    done = 0
    for _ in range(draw(st.integers(0, 3))):
        log.event("job.in_progress")
        shown = draw(st.integers(done, len(pieces)))
        kept = draw(st.integers(done, shown))
        log.output(pieces[done:shown], kept - done)
        done = kept
        if kept < shown or draw(st.booleans()):
            log.event("job.queued", {"attempt": 1, "output_offset": log.stored_raw}, void=True)
        else:
            log.event("job.queued", {"attempt": 1, "reason": "preempted"})
        if draw(st.booleans()):
            log.event("job.in_progress")
            log.event("output.rewind", {"offset": 0})
            log.output_start_seq, log.stored_raw, done = log.seq, 0, 0
            log.event("job.queued", {"attempt": 1, "reason": "preempted"})
    # What has started cannot expire.
    ends = [
        status for status in Status if status.is_terminal and (status is not Status.EXPIRED or log.seq == 1)
    ]
    log.status = draw(st.sampled_from(ends))
    if log.status is not Status.EXPIRED:
        log.event("job.in_progress")
        while done < len(pieces):
            size = draw(st.integers(1, len(pieces) - done))
            log.output(pieces[done : done + size], size)
            done += size
    log.event(log.status.event_type, ended(log.status))
    return log
