"""vLLM in this process, and with the other `vllm_*` the only importer of vllm. It turns calls into requests of
token ids and vLLM's outputs into deltas; text is made by our own decoder, so detokenising is off. Jobs, streams
and the database are unknown here. Set its environment (`loading`) before importing it.
"""

import asyncio
import contextlib
import hashlib
import logging
import re
import threading
from collections.abc import AsyncGenerator, Sequence
from typing import Any
from uuid import uuid4

from jinja2 import TemplateError
from transformers import AutoTokenizer
from vllm import SamplingParams
from vllm.exceptions import (
    MaxQueuedTokensError,
    QueueOverflowError,
    RetryableRequestError,
    VLLMClientError,
    VLLMError,
)
from vllm.inputs.engine import tokens_input
from vllm.sampling_params import RequestOutputKind
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.metrics.loggers import StatLoggerBase

from app.jobs.prompts import Prompt, ToolUse
from config.catalogue import ModelSpec
from workers.engine import (
    Call,
    Decoder,
    Delta,
    EngineBusy,
    EngineDead,
    EngineStartFailed,
    OutputReader,
    PromptRejected,
    Sampling,
)
from workers.engine.calls import find_ending, plain_prompt, tokens_left
from workers.engine.decoding import Vocabulary, read_vocabulary
from workers.engine.grammar import GrammarGuard, structure_of
from workers.engine.vllm_options import engine_args, eos_ids
from workers.engine.vllm_outputs import delta_of
from workers.engine.vllm_penalties import penalties_of, processor_name
from workers.engine.vllm_reading import VllmReading, format_of


class KvWatch(StatLoggerBase):  # type: ignore[misc]  # vLLM ships no types
    """Remembers the one figure of vLLM's statistics that we ask for."""

    def __init__(self) -> None:
        self.use: float | None = None

    def record(self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any) -> None:  # noqa: ARG002 - vLLM's signature
        if scheduler_stats is not None:
            self.use = scheduler_stats.kv_cache_usage

    def log_engine_initialized(self) -> None:
        pass


class VllmEngine:
    """An `Engine`. Start it on a thread that lives as long as the process (see `orphans`)."""

    def __init__(self, spec: ModelSpec, slots: int) -> None:
        self.spec = spec
        self.slots = slots
        self._llm: Any = None
        self._tokenizer: Any = None
        self._template: str | None = None  # in place of the model's own
        self._reading: VllmReading | None = None
        self._guard: GrammarGuard | None = None
        self._template_lock = threading.Lock()  # a Hugging Face tokenizer is not safe to share
        self._vocabulary = Vocabulary([], frozenset())
        self._eos_ids: frozenset[int] = frozenset()
        self._is_seed_by_position = False
        self._kv_watch = KvWatch()

    async def start(self) -> None:
        logging.getLogger("vllm").setLevel(logging.WARNING)
        try:
            config = self._configure()
            # It warms up while the model loads, not while the first jobs run.
            self._guard = GrammarGuard(self.spec.weights_path, len(self._vocabulary.pieces))
            await self._guard.start()
            self._load(config)
        except (VLLMError, RuntimeError, ValueError, TypeError, OSError, ImportError) as error:
            raise EngineStartFailed(f"vLLM did not start {self.spec.name}: {error}") from error

    def _configure(self) -> Any:
        """Read what is known of the model before it is loaded."""
        config = engine_args(self.spec, self.slots).create_engine_config(UsageContext.OPENAI_API_SERVER)
        if config.speculative_config:
            raise ValueError("Speculative decoding cannot continue an answer that has penalties.")
        # Model runner V2 draws random numbers by seed and position, V1 by seed and step of this request.
        self._is_seed_by_position = config.use_v2_model_runner
        config.model_config.logits_processors = [processor_name(is_runner_v2=config.use_v2_model_runner)]
        self._tokenizer = AutoTokenizer.from_pretrained(self.spec.weights_path)
        if self.spec.chat_template_path is not None:
            self._template = self.spec.chat_template_path.read_text(encoding="utf-8")
        self._vocabulary = read_vocabulary(
            self._tokenizer.backend_tokenizer, config.model_config.get_vocab_size()
        )
        self._eos_ids = eos_ids(config.model_config, self._tokenizer)
        self._reading = VllmReading(self.spec, config.model_config, self._vocabulary, self._eos_ids)
        return config

    def _load(self, config: Any) -> None:
        # The constructor needs the running loop: it ties its sockets and its output task to it.
        self._llm = AsyncLLM.from_vllm_config(
            config,
            usage_context=UsageContext.OPENAI_API_SERVER,
            stat_loggers=[self._watch],
            disable_log_stats=True,
        )

    async def stop(self) -> None:
        if self._guard is not None:
            await self._guard.stop()
        llm, self._llm = self._llm, None
        if llm is not None:
            # vLLM's own shutdown lets running calls wait for ever, or its reader log the end as a crash.
            llm.output_handler.cancel()
            await asyncio.gather(llm.output_handler, return_exceptions=True)
            llm.output_processor.propagate_error(EngineDeadError())
            await asyncio.to_thread(llm.shutdown)

    def check(self) -> None:
        if self._llm is None or self._llm.errored:
            raise EngineDead(f"The vLLM engine of {self.spec.name} is gone.")

    def _watch(self, _config: Any, _index: int = 0) -> "KvWatch":
        return self._kv_watch

    def kv_use(self) -> float | None:
        return self._kv_watch.use

    def encode(self, prompt: Prompt | str) -> list[int]:
        plain = plain_prompt(prompt)
        try:
            with self._template_lock:
                return self._tokenize(plain)
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            raise PromptRejected(f"The model's chat template refuses these messages: {error}") from error

    def _tokenize(self, prompt: Prompt) -> list[int]:
        if prompt.raw is not None:
            raw: list[int] = self._tokenizer(prompt.raw).input_ids
            return raw
        ids: list[int] = self._tokenizer.apply_chat_template(
            prompt.messages,
            tools=prompt.tools or None,
            chat_template=self._template,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
        )
        return ids

    def decoder(self, prompt_ids: Sequence[int]) -> Decoder:  # noqa: ARG002 - bytes need no context
        return self._vocabulary.decoder()

    def token_text(self, token_id: int) -> str:
        return self._vocabulary.token_text(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        return self._vocabulary.token_bytes(token_id)

    def reader(self, tool_use: ToolUse | None, prompt_ids: Sequence[int], job_id: str) -> OutputReader | None:
        return None if self._reading is None else self._reading.reader(tool_use, prompt_ids, job_id)

    async def generate(self, call: Call) -> AsyncGenerator[Delta]:
        if ending := find_ending(call, self._eos_ids, self.spec.context_tokens):
            yield Delta((), finish=ending)
            return
        self.check()
        request_id = f"{call.id}:{uuid4().hex}"
        is_over = False
        try:
            structure = await self._structure(call.sampling)
            params = self._params(call, structure)
            outputs = self._llm.generate(_prompt(call), params, request_id, priority=call.priority)
            async with contextlib.aclosing(outputs):
                async for output in outputs:
                    delta = delta_of(output, call.sampling)
                    is_over = delta.finish is not None
                    yield delta
        except EngineDeadError as error:
            raise EngineDead(f"The vLLM engine of {self.spec.name} died.") from error
        except (QueueOverflowError, MaxQueuedTokensError, RetryableRequestError) as error:
            raise EngineBusy(str(error)) from error
        except VLLMClientError as error:
            raise PromptRejected(_safe_message(error)) from error
        finally:
            if not is_over:
                await self._abort(request_id)

    async def _abort(self, request_id: str) -> None:
        """Closing vLLM's generator aborts the request, but not when that happens while it still adds
        the request (vllm#57061).
        """
        if self._llm is not None:
            with contextlib.suppress(EngineDeadError):
                await asyncio.shield(self._llm.abort(request_id))

    async def _structure(self, sampling: Sampling) -> Any:
        """The grammar that the output must follow, once it is known that the engine can bear it."""
        if not sampling.is_structured:
            return None
        assert self._guard is not None
        assert self._reading is not None
        await self._guard.require(structure_of(format_of(sampling)))
        structure = await asyncio.to_thread(self._reading.structured_outputs, sampling)
        await self._guard.require(structure_of(structure))
        return structure

    def _params(self, call: Call, structure: Any) -> Any:
        sampling, prior = call.sampling, len(call.prior_ids)
        left = tokens_left(call, self.spec.context_tokens)
        seed = sampling.seed
        if seed is not None and prior and not self._is_seed_by_position:
            seed = _derived_seed(seed, prior)
        return SamplingParams(
            max_tokens=left,
            min_tokens=min(left, max(0, sampling.min_tokens - prior)),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            seed=seed,
            logit_bias=sampling.logit_bias or None,
            logprobs=sampling.logprobs,
            ignore_eos=sampling.ignore_eos,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            structured_outputs=structure,
            **penalties_of(call),
        )


def _prompt(call: Call) -> Any:
    return tokens_input([*call.prompt_ids, *call.prior_ids], cache_salt=call.cache_salt or None)


def _derived_seed(seed: int, position: int) -> int:
    digest = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1  # torch takes 63 bits


def _safe_message(error: Exception) -> str:
    """The error's own words, without its source locations."""
    return re.sub(r"\[[\d:]+\] \S+:\d+: ", "", str(error).partition("\n")[0])[:300]
