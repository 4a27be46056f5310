"""An engine without a model: deterministic text at a set speed, for tests, demos and load tests. Without a
seed a call at a temperature above 0 says something else every time; penalties, `top_p` and the like are taken
and change nothing. It knows nothing of jobs.

Options (`engine_options` in the catalogue): `step_seconds` between two tokens of a stream,
`prefill_tokens_per_second` of the whole engine, and `cues`. Where `cues` is true, a prompt can direct its call;
leave it out where strangers write the prompts:

    [[tokens=N]]             ends by itself after N tokens       [[say=TEXT]]   says TEXT and ends
    [[think=TEXT]]           reasons so                          [[call=NAME {JSON}]]  asks for this call
    [[emoji]]                many four-token emoji               [[step_ms=N]]  slower than the engine's step
    [[stall_after=N]]        no token after the first N of this attempt, until it is closed
    [[crash_after=N]]        then kills this process: the poison job
    [[engine_dies_after=N]]  then the whole engine is dead       [[reject]]     the call is refused

The last user message directs. What is to be thought, said and called comes in that order, up to the last call;
what stands after it waits for the calls' results. A choice of tools that forces a call makes the smallest one.
"""

import asyncio
import bisect
import contextlib
import os
import signal
from array import array
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from hashlib import blake2b

from app.jobs.prompts import Prompt, ToolUse
from app.tokens.simulated import EOS, encode_prompt
from config.catalogue import ModelSpec
from workers.engine import (
    Call,
    Decoder,
    Delta,
    EngineDead,
    OutputReader,
    PromptRejected,
    TokenLogprob,
)
from workers.engine.calls import find_ending, plain_prompt, tokens_left
from workers.engine.simulated_answers import Cues, find_cues, open_writer
from workers.engine.simulated_reading import MarkupReader
from workers.engine.simulated_streams import Stream
from workers.engine.simulated_words import VOCABULARY

_BLOCK = 16  # tokens; prefixes are cached in whole blocks
_CACHED_BLOCKS = 65_536
_EOS_IDS = frozenset({EOS})


class SimulatedEngine:
    """An `Engine`."""

    def __init__(self, spec: ModelSpec, slots: int) -> None:
        self.spec = spec
        self.slots = slots
        options = spec.engine_options
        self._step_seconds = max(1e-4, float(options.get("step_seconds", 0.02)))
        self._prefill_rate = float(options.get("prefill_tokens_per_second", 20_000))
        self._has_cues = bool(options.get("cues"))
        self._running: list[Stream] = []
        self._waiting: list[Stream] = []  # who is admitted next, first
        self._prefilled_at = 0.0
        self._cached: OrderedDict[bytes, None] = OrderedDict()
        self._death: EngineDead | None = EngineDead("The engine is not started.")
        self._work: asyncio.Event = asyncio.Event()
        self._ticker: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._death = None
        self._ticker = asyncio.create_task(self._tick())

    async def stop(self) -> None:
        ticker, self._ticker = self._ticker, None
        if ticker is not None:
            ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticker
            self._die(EngineDead("The engine was stopped."))

    def check(self) -> None:
        if self._death is not None:
            raise self._death

    def kv_use(self) -> float:
        """As if every slot held as much."""
        return len(self._running) / self.slots

    def encode(self, prompt: Prompt | str) -> list[int]:
        try:
            return encode_prompt(plain_prompt(prompt))
        except KeyError as error:
            raise PromptRejected(f"The model's chat template has no role or field {error}.") from error

    def decoder(self, prompt_ids: Sequence[int]) -> Decoder:  # noqa: ARG002 - bytes need no context
        return VOCABULARY.decoder()

    def token_text(self, token_id: int) -> str:
        return VOCABULARY.token_text(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        return VOCABULARY.token_bytes(token_id)

    def reader(
        self,
        tool_use: ToolUse | None,
        prompt_ids: Sequence[int],  # noqa: ARG002 - reasoning begins with a mark of its own
        job_id: str,
    ) -> OutputReader | None:
        reasons = self._has_cues and self.spec.reasoning_parser  # without cues there is never a thought
        if tool_use is None and not reasons:
            return None
        is_parallel = tool_use is None or tool_use.is_parallel
        return MarkupReader(job_id, calls=tool_use is not None, is_parallel=is_parallel)

    async def generate(self, call: Call) -> AsyncGenerator[Delta]:
        self.check()
        if ending := find_ending(call, _EOS_IDS, self.spec.context_tokens):
            yield Delta((), finish=ending)
            return
        cached = self._count_cached(call)
        stream = self._stream(call, cached)
        bisect.insort(self._waiting, stream, key=lambda waiting: waiting.priority)
        self._work.set()
        try:
            while stream.finish is None or stream.fresh:
                ids = stream.fresh or await stream.more()
                stream.fresh = []
                yield Delta(ids, _logprobs(ids, call.sampling.logprobs), stream.finish, cached)
        finally:
            self._forget(stream)

    def _stream(self, call: Call, cached: int) -> Stream:
        cues = find_cues(call) if self._has_cues else Cues()
        faults = cues.named
        if "reject" in faults:
            raise PromptRejected("The prompt asked to be rejected.")
        left = tokens_left(call, self.spec.context_tokens)
        stride = max(1, round(int(faults.get("step_ms", 0)) / 1000 / self._step_seconds))
        prefill = len(call.prompt_ids) + len(call.prior_ids) - cached
        writer = open_writer(call, cues)
        return Stream(writer.next, faults, left=left, stride=stride, prefill=prefill, priority=call.priority)

    def _count_cached(self, call: Call) -> int:
        """Prompt tokens that an earlier call with the same salt began with; and remember this one's."""
        ids = array("I", [*call.prompt_ids, *call.prior_ids])
        digest = blake2b((call.cache_salt or "").encode(), digest_size=16).digest()
        cached = 0
        for end in range(_BLOCK, len(ids), _BLOCK):
            digest = blake2b(digest + ids[end - _BLOCK : end].tobytes(), digest_size=16).digest()
            if digest in self._cached:
                cached = end
            self._cached[digest] = None
            self._cached.move_to_end(digest)
        while len(self._cached) > _CACHED_BLOCKS:
            self._cached.popitem(last=False)
        return cached

    def _forget(self, stream: Stream) -> None:
        for streams in (self._running, self._waiting):
            with contextlib.suppress(ValueError):
                streams.remove(stream)

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        ticks = 0
        while True:
            if not self._running and not self._waiting:
                self._work.clear()
                await self._work.wait()
                due = loop.time()
            # A late step moves the schedule only when it is late by more than a step: no engine catches up.
            due = max(due + self._step_seconds, loop.time())
            await asyncio.sleep(due - loop.time())
            ticks += 1
            self._step(loop.time(), ticks)

    def _step(self, now: float, ticks: int) -> None:
        while self._waiting and len(self._running) < self.slots:
            self._admit(self._waiting.pop(0), now)
        for stream in self._running:
            if now < stream.ready_at or (stream.stride > 1 and ticks % stream.stride):
                continue
            if stream.cues and self._is_hit_by_fault(stream):
                continue
            stream.step()
        if self._death is None:
            self._running = [stream for stream in self._running if stream.finish is None]

    def _admit(self, stream: Stream, now: float) -> None:
        self._prefilled_at = max(self._prefilled_at, now) + stream.prefill / self._prefill_rate
        stream.ready_at = self._prefilled_at
        self._running.append(stream)

    def _is_hit_by_fault(self, stream: Stream) -> bool:
        made = str(stream.made)
        if stream.cues.get("crash_after") == made:
            os.kill(os.getpid(), signal.SIGKILL)
        if stream.cues.get("engine_dies_after") == made:
            self._die(EngineDead("The prompt asked the engine to die."))
        return self._death is not None or stream.cues.get("stall_after") == made

    def _die(self, death: EngineDead) -> None:
        self._death = death
        for stream in [*self._running, *self._waiting]:
            stream.fail(death)
        self._waiting.clear()
        self._running = []


def _logprobs(ids: Sequence[int], count: int | None) -> list[TokenLogprob]:
    """Made up: the chosen token is the likeliest, its neighbours by number come next."""
    if count is None:
        return []
    size = len(VOCABULARY.pieces)
    return [
        TokenLogprob(token, -0.25, tuple(((token + rank) % size, -0.25 - rank) for rank in range(count)))
        for token in ids
    ]
