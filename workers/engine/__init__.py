"""The one seam of the worker: an `Engine` turns prompt tokens into output tokens. Implementations (`vllm`,
`simulated`) pass one conformance suite, `tests/engine`. An engine works in token ids; text, stop strings,
streams, leases and the database are the executor's and unknown here.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from app.jobs.parts import Part
from app.jobs.prompts import Prompt, ToolUse
from config.catalogue import ModelSpec


class EngineStartFailed(Exception):
    """The engine did not come up; the process should hand back its jobs and exit."""


class EngineDead(Exception):
    """The engine is gone and will answer no more; the process should hand back its jobs and exit."""


class PromptRejected(Exception):
    """This call can never work (too long, a schema the engine refuses). The message is safe to show."""


class EngineBusy(Exception):
    """The engine takes no more calls now; put the job back, uncharged."""


class FinishReason(StrEnum):
    STOP = "stop"  # the model ended its answer (end-of-sequence or a stop token)
    LENGTH = "length"  # max_tokens or the context window


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose tokens. Counts are of the whole output, from its first token, resumed or not."""

    max_tokens: int
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0: all
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    logprobs: int | None = None  # alternatives a token; 0 is the chosen token alone; None is off
    ignore_eos: bool = False
    json_schema: dict[str, Any] | None = None
    json_object: bool = False
    tool_use: ToolUse | None = None

    @property
    def has_format(self) -> bool:
        return self.json_schema is not None or self.json_object

    @property
    def is_structured(self) -> bool:
        return self.has_format or (self.tool_use is not None and self.tool_use.is_structured)


@dataclass(frozen=True, slots=True)
class Call:
    """One generation. `prior_ids` is output that earlier attempts produced: the engine goes on after it and
    never yields it again, and everything in `sampling` holds as if it had been one undisturbed run. Give no
    `prior_ids` where `sampling.is_structured`: a grammar cannot start half way.
    """

    id: str
    prompt_ids: Sequence[int]
    sampling: Sampling
    prior_ids: Sequence[int] = ()
    priority: int = 0  # which of several calls is read first where not all can be: the smallest
    cache_salt: str | None = None  # prompts with different salts never share cached prefixes


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural logarithms. `top` holds (token id, logprob), best first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True)  # not frozen: that costs, and one is made for every token
class Delta:
    """New output. `finish` is set on the last delta alone, which may have no tokens. End-of-sequence tokens
    are among `token_ids`: they count as output and decode to no text.
    """

    token_ids: Sequence[int]
    logprobs: Sequence[TokenLogprob] = ()
    finish: FinishReason | None = None
    cached_tokens: int | None = None  # prompt tokens (of prompt and prior ids) found in the cache


class Decoder(Protocol):
    """Token ids to text, incrementally. Feeding the same ids gives the same text, however they are cut."""

    def step(self, token_id: int) -> str:
        """The text that this token completes: empty inside a multi-byte character or for a special token."""
        ...

    def flush(self) -> str:
        """What is left at the end: U+FFFD for bytes that never became a character, usually nothing."""
        ...


class OutputReader(Protocol):
    """Takes a model's own markup apart: reasoning, calls, and what is said. One reads one output from its first
    token, earlier attempts' included; feeding the same gives the same parts.
    """

    @property
    def held(self) -> int:
        """How many characters at the end of what it was fed it keeps, until it knows what they are."""
        ...

    def feed(self, text: str, token_ids: Sequence[int]) -> list[Part]:
        """What these tokens make known; `text` is what they show."""
        ...

    def finish(self) -> list[Part]:
        """What is left when no more tokens come. An incomplete call keeps what there is of it."""
        ...


Message = dict[str, Any]  # {"role": ..., "content": ...}


class Engine(Protocol):
    """Every coroutine runs on the one engine loop; everything else is safe from any thread, once started."""

    spec: ModelSpec
    slots: int

    async def start(self) -> None:
        """Load the model and be ready to generate. Raises `EngineStartFailed`."""
        ...

    async def stop(self) -> None:
        """Abort what runs and free everything. Idempotent."""
        ...

    def check(self) -> None:
        """Raise `EngineDead` if the engine is gone."""
        ...

    def kv_use(self) -> float | None:
        """The share of the KV cache that running calls hold, 0..1; None where the engine does not say."""
        ...

    def encode(self, prompt: Prompt | str) -> list[int]:
        """Token ids of a prompt: messages and tools through the model's chat template, a raw text as it stands,
        a string as a single user message. Raises `PromptRejected` if the template refuses it.
        """
        ...

    def decoder(self, prompt_ids: Sequence[int]) -> Decoder:
        """A fresh decoder for output that follows `prompt_ids`."""
        ...

    def token_text(self, token_id: int) -> str:
        """One token on its own, for logprobs."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The same in UTF-8, of which a token may hold a part of a character."""
        ...

    def reader(self, tool_use: ToolUse | None, prompt_ids: Sequence[int], job_id: str) -> OutputReader | None:
        """A fresh reader for output that follows `prompt_ids`. None where the model has no markup that matters:
        it may call nothing, and does not reason. Ids of calls are made of `job_id`.
        """
        ...

    def generate(self, call: Call) -> AsyncGenerator[Delta]:
        """Yield deltas until one carries `finish`. Closing the generator, or cancelling the task that reads
        it, aborts the call in the engine within a step. Raises `PromptRejected`, `EngineBusy`, `EngineDead`.
        """
        ...
