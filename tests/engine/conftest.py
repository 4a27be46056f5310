"""Engines for the conformance suite: each is started once a module, on one event loop in a thread of its own,
as in a worker.
"""

import asyncio
import gc
import threading
import warnings
from collections.abc import Coroutine, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from app.jobs.parts import Part
from app.jobs.prompts import Prompt, ToolUse
from config.catalogue import ModelSpec, catalogue
from workers.engine import Call, Delta, Engine, FinishReason, Sampling
from workers.engine.loading import load_engine

SLOTS = 8
WEATHER = ToolUse(
    (
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "The weather of a city",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"enum": ["Paris", "Oslo"]}, "days": {"type": "integer"}},
                    "required": ["city"],
                    "additionalProperties": False,
                },
            },
        },
        {
            "type": "function",
            "function": {
                "name": "stop",
                "description": "",
                "parameters": {"type": "object", "properties": {}},
            },
        },
    )
)
TIMEOUT_SECONDS = 300

# vLLM leaves a ZeroMQ context to the garbage collector.
VLLM_MARKS = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore:Unclosed context:ResourceWarning")]


class EngineLoop:
    """The one loop that an engine lives on."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine-loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine, timeout: float = TIMEOUT_SECONDS):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout)

    def close(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@dataclass
class Answer:
    """A finished call."""

    deltas: list[Delta] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        return [token for delta in self.deltas for token in delta.token_ids]

    @property
    def logprobs(self) -> list:
        return [logprob for delta in self.deltas for logprob in delta.logprobs]

    @property
    def finish(self) -> FinishReason | None:
        return self.deltas[-1].finish


class Subject:
    """An engine under test, called from the test's own thread."""

    def __init__(self, engine: Engine, loop: EngineLoop):
        self.engine = engine
        self.loop = loop
        self._undisturbed: dict[str, list[int]] = {}

    def call(
        self, prompt="Tell me a long story about the sea.", *, prior=(), salt=None, priority=0, **sampling: Any
    ) -> Call:
        ids = self.engine.encode(prompt) if isinstance(prompt, str) else prompt
        options = {"max_tokens": 60, "temperature": 0.0} | sampling
        return Call("call", ids, Sampling(**options), prior_ids=prior, priority=priority, cache_salt=salt)

    def answer(self, prompt="Tell me a long story about the sea.", **options: Any) -> Answer:
        return self.loop.run(self.read(self.call(prompt, **options)))

    def undisturbed(self, **sampling: Any) -> list[int]:
        """The whole answer to the usual prompt at temperature 0, made once."""
        key = repr(sampling)
        if key not in self._undisturbed:
            self._undisturbed[key] = self.answer(**sampling).ids
        return self._undisturbed[key]

    def answers(self, calls: list[Call]) -> list[Answer]:
        async def all_of_them():
            return await asyncio.gather(*(self.read(call) for call in calls))

        return self.loop.run(all_of_them())

    async def read(self, call: Call) -> Answer:
        answer = Answer()
        async with aclosing(self.engine.generate(call)) as deltas:
            async for delta in deltas:
                answer.deltas.append(delta)
        return answer

    def text(self, ids) -> str:
        decoder = self.engine.decoder([])
        return "".join(decoder.step(token) for token in ids) + decoder.flush()

    def parts(self, ids, prompt_ids=(), tool_use: ToolUse | None = None, job_id="job_1") -> list[Part]:
        """What a reader finds that is fed token by token."""
        reader, decoder = self.engine.reader(tool_use, prompt_ids, job_id), self.engine.decoder(prompt_ids)
        found = [part for token in ids for part in reader.feed(decoder.step(token), [token])]
        if rest := decoder.flush():
            found += reader.feed(rest, [])
        return [*found, *reader.finish()]

    def encode_plain(self, text: str) -> list[int]:
        """The tokens of `text` itself."""
        return self.engine.encode(Prompt(raw=text))


def simulated_spec(**options: Any) -> ModelSpec:
    speed = {"step_seconds": 0.002, "prefill_tokens_per_second": 1_000_000, "cues": True}
    return catalogue()["simulated"].model_copy(update={"engine_options": speed | options})


def vllm_spec() -> ModelSpec:
    """The catalogue's model at full precision: in bfloat16 two of its tokens can be so close that prefill and
    decode choose differently.
    """
    spec = catalogue()["smollm2"]
    if not (Path(spec.weights_path) / "config.json").is_file():
        pytest.fail(f"{spec.weights_path} has no model: `make setup` converts it.")
    return spec.model_copy(update={"engine_options": {**spec.engine_options, "dtype": "float32"}})


@contextmanager
def running(spec: ModelSpec) -> Iterator[Subject]:
    loop = EngineLoop()
    with warnings.catch_warnings():
        if spec.engine == "vllm":
            warnings.simplefilter("ignore")  # importing vLLM and torch warns about their own insides
        engine = load_engine(spec, SLOTS)
        loop.run(engine.start(), timeout=300)
    yield Subject(engine, loop)
    loop.run(engine.stop())
    loop.close()
    gc.collect()


SPECS = {"simulated": simulated_spec, "vllm": vllm_spec}


@pytest.fixture(scope="module", params=["simulated", pytest.param("vllm", marks=VLLM_MARKS)])
def subject(request) -> Iterator[Subject]:
    with running(SPECS[request.param]()) as subject:
        yield subject
