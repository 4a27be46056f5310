"""A job in this worker's hands: its lease, why it is to stop, and its output that is not stored yet. Fed on the
engine loop, read by the recorder's threads and by the job's own task thread; the lock guards the hand-over.
"""

import asyncio
import threading
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Any

from app import clock
from app.jobs.log import UNSTORED_SEQ_LIMIT, Output, Segment
from app.jobs.parts import Part
from app.jobs.tables import Job
from config.queues import Tier
from workers.engine import Delta, Engine, FinishReason, TokenLogprob
from workers.output import TextAssembler, storable
from workers.reading import Reading, is_same


class Cause(StrEnum):
    """Why a generation is stopped from outside. The first cause stays."""

    CANCELLED = auto()
    FIRST_TOKEN_TIMEOUT = auto()
    TOTAL_TIMEOUT = auto()
    WINDOW_PASSED = auto()
    STOPPING = auto()  # this process drains
    PREEMPTED = auto()  # an interactive job needs the slot
    ENGINE_DEAD = auto()
    LEASE_LOST = auto()
    UNSTORABLE = auto()  # Postgres refuses this job's output


@dataclass(slots=True)  # not frozen: that costs, and one is made for every token
class Piece:
    """Output under one sequence number, as it went out live. It may show no text and yet have parts."""

    seq: int
    offset: int
    text: str
    token_ids: list[int]
    logprobs: list[Any] | None
    is_first: bool  # of this attempt
    parts: list[Part] | None = None


class RunningJob:
    """One attempt. `seq` and `offset` are those of the last piece."""

    def __init__(self, job: Job, seq: int) -> None:
        assert job.lease_id
        self.id = job.id
        self.job = job
        self.lease_id = job.lease_id
        self.attempt = job.attempt
        self.seq = seq
        self.offset = 0
        self.cause: Cause | None = None
        self.finish: FinishReason | None = None
        self.input_tokens = 0
        self.cached_tokens = 0
        self.first_token_at: float | None = None  # monotonic
        self.claimed_at = clock.monotonic()
        self.heard_at = self.claimed_at  # the last delta, or the start
        self.is_generating = False
        self.is_prefill_noted = False
        self.store_lock = threading.Lock()  # held while this job's pieces are on their way into Postgres
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._assembler: TextAssembler | None = None
        self._reading: Reading | None = None
        self._engine: Engine | None = None  # names tokens, where logprobs are asked for
        self._text: list[str] = []
        self._token_ids: list[int] = []
        self._logprobs: list[Any] | None = None
        self._unstored: list[Piece] = []
        self._prior_ids: tuple[int, ...] = ()
        self._is_fresh = True

    @property
    def may_yield(self) -> bool:
        """Whether it gives up its slot to an interactive job."""
        return (
            self.job.tier is Tier.BATCH and self.job.is_preemptible and self.cause is None and not self.finish
        )

    # Preparing: the job's own thread, before anything is generated.

    def resume(self, assembler: TextAssembler, reading: Reading | None, prior: Output) -> bool:
        """Continue after earlier output. False where its tokens no longer give its text or its parts."""
        shown = []
        for token_id in prior.token_ids:
            shown.append(text := assembler.feed(token_id))
            if reading is not None:
                reading.feed(token_id, text, assembler.held)
        self._assembler, self._reading = assembler, reading
        self._prior_ids = prior.token_ids
        self.offset = len(prior.text)
        return "".join(shown) == prior.text and is_same(reading.take() if reading else (), prior.parts or ())

    def restart(self, assembler: TextAssembler, reading: Reading | None, seq: int) -> None:
        """Begin from nothing; `seq` is that of the rewind."""
        self._assembler, self._reading = assembler, reading
        self._prior_ids, self.offset, self.seq = (), 0, seq

    def collect_logprobs(self, engine: Engine) -> None:
        self._engine = engine
        self._logprobs = []

    @property
    def prior_ids(self) -> tuple[int, ...]:
        return self._prior_ids

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string has come."""
        return self._assembler is not None and self._assembler.is_stopped

    @property
    def tokens(self) -> int:
        """Output tokens so far, earlier attempts' included."""
        return self._assembler.tokens if self._assembler else 0

    # Generating: the engine loop.

    def bind(self, loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any] | None") -> None:
        """Say what `stop` is to cancel."""
        self._loop, self._task = loop, task
        self.is_generating = True
        self.heard_at = clock.monotonic()
        if self.cause is not None:
            self.stop(self.cause)

    def feed(self, delta: Delta) -> bool:
        """Take new tokens. True once the output is complete."""
        assert self._assembler is not None
        self.heard_at = clock.monotonic()
        if self.first_token_at is None and delta.token_ids:
            self.first_token_at = self.heard_at
        if delta.cached_tokens is not None:
            self.cached_tokens = delta.cached_tokens
        with self._lock:
            for index, token_id in enumerate(delta.token_ids):
                self._token_ids.append(token_id)
                if text := self._assembler.feed(token_id):
                    self._text.append(text)
                logprob = None
                if self._logprobs is not None and delta.logprobs:
                    self._logprobs.append(logprob := self._describe(delta.logprobs[index]))
                if self._reading is not None:
                    self._reading.feed(token_id, text, self._assembler.held, logprob)
                if self._assembler.is_stopped:
                    self.finish = FinishReason.STOP
                    return True
            # What ends the output is not shown before it is settled: a later attempt must never be asked to
            # go on after a finished output.
            self.finish = delta.finish
            return delta.finish is not None

    def _describe(self, logprob: TokenLogprob) -> dict[str, Any]:
        assert self._engine is not None
        return {
            **_named(self._engine, logprob.token_id, logprob.logprob),
            "top_logprobs": [_named(self._engine, token_id, value) for token_id, value in logprob.top],
        }

    def stop(self, cause: Cause) -> None:
        """Stop generating, from any thread."""
        if self.cause is None:
            self.cause = cause
        if self._loop is not None and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)

    # Recording: the recorder's threads, and the job's own when it settles.

    def cut(self) -> Piece | None:
        """Number what came since the last piece. None if nothing shows yet, or too much is unstored."""
        with self._lock:
            if self.finish or len(self._unstored) >= UNSTORED_SEQ_LIMIT:
                return None
            return self._cut() if self._text or self._has_parts else None

    @property
    def _has_parts(self) -> bool:
        return self._reading is not None and bool(self._reading.found)

    def _cut(self) -> Piece:
        piece = Piece(
            seq=self.seq + 1,
            offset=self.offset,
            text="".join(self._text),
            token_ids=self._token_ids,
            logprobs=self._logprobs,
            is_first=self._is_fresh,
            parts=None if self._reading is None else self._reading.take(),
        )
        self._is_fresh = False
        self.seq, self.offset = piece.seq, piece.offset + len(piece.text)
        self._text, self._token_ids = [], []
        self._logprobs = None if self._logprobs is None else []
        self._unstored.append(piece)
        return piece

    def cut_last(self) -> Piece | None:
        """The final piece, with what was held back for a stop string that did not come."""
        with self._lock:
            rest = self._assembler.finish() if self._assembler is not None else ""
            if rest:
                self._text.append(rest)
            if self._reading is not None:
                self._reading.finish(rest)
            return self._cut() if self._text or self._token_ids or self._has_parts else None

    def unstored(self) -> Segment | None:
        """What went out live and is not stored yet, as one segment. Hold `store_lock`."""
        with self._lock:
            pieces = list(self._unstored)
        if not pieces:
            return None
        ends, end = [], 0
        for piece in pieces:
            end += len(piece.text)
            ends.append(end)
        return Segment(
            job_id=self.id,
            lease_id=self.lease_id,
            first_seq=pieces[0].seq,
            seq=pieces[-1].seq,
            attempt=self.attempt,
            char_offset=pieces[0].offset,
            text="".join(piece.text for piece in pieces),
            ends=ends,
            token_ids=[token for piece in pieces for token in piece.token_ids],
            logprobs=None if pieces[0].logprobs is None else [piece.logprobs for piece in pieces],
            parts=None if pieces[0].parts is None else [piece.parts for piece in pieces],
        )

    def forget_unstored(self) -> None:
        with self._lock:
            self._unstored = []

    def mark_stored(self, seq: int) -> None:
        with self._lock:
            self._unstored = [piece for piece in self._unstored if piece.seq > seq]


def _named(engine: Engine, token_id: int, logprob: float) -> dict[str, Any]:
    token = storable(engine.token_text(token_id))
    return {"token": token, "logprob": logprob, "bytes": list(engine.token_bytes(token_id))}
