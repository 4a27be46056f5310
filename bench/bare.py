"""A worker that also takes orders for bare rounds: the same prompts straight through `Engine.generate`, with no
job, lease, recorder or stream. One process, so that both sides of a comparison use the same engine, one at a
time. `celery -A bench.bare:app worker` in place of `workers.celery:app`; orders come over Redis.
"""

import asyncio
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

import orjson
from celery import signals

from app.redis import client
from workers.celery import app, current_worker
from workers.engine import Call, Engine, Sampling
from workers.process import WorkerProcess

__all__ = ["Order", "Round", "app", "run_bare"]

ORDERS: Final = "bench:orders"
ANSWERS: Final = "bench:answers"
ANSWER_SECONDS: Final = 600
_BLOCK_SECONDS: Final = 2  # below the client's socket timeout


@dataclass(frozen=True, slots=True)
class Order:
    """One generation a prompt, `concurrency` of them at a time."""

    prompts: list[str]
    max_tokens: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class Round:
    """What came of it; `cpu_seconds` are of the worker process alone, without an engine process."""

    seconds: float
    tokens: int
    cpu_seconds: float
    first_token_seconds: list[float]

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


def run_bare(order: Order) -> Round:
    """Have the worker run a bare round, and wait for it."""
    client().rpush(ORDERS, orjson.dumps(asdict(order)))
    return Round(**_pop(ANSWERS, ANSWER_SECONDS))


def _pop(key: str, seconds: float) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = cast("tuple[bytes, bytes] | None", client().blpop([key], timeout=_BLOCK_SECONDS))
        if found is not None:
            body: dict[str, Any] = orjson.loads(found[1])
            return body
    raise TimeoutError(key)


def _take_orders(**_: Any) -> None:
    threading.Thread(target=_serve, args=(current_worker(),), daemon=True).start()


# After the worker's own handler, hence after its boot.
signals.worker_init.connect(_take_orders, weak=False)


def _serve(worker: WorkerProcess) -> None:
    while True:
        order = Order(**_pop(ORDERS, float("inf")))
        done = worker.loop.run(_run(worker.engine, order))
        client().rpush(ANSWERS, orjson.dumps(asdict(done)))


async def _run(engine: Engine, order: Order) -> Round:
    gate = asyncio.Semaphore(order.concurrency)
    began, cpu_began = time.monotonic(), time.process_time()
    found = await asyncio.gather(
        *(
            _generate(engine, gate, str(index), prompt, order.max_tokens)
            for index, prompt in enumerate(order.prompts)
        )
    )
    return Round(
        seconds=time.monotonic() - began,
        tokens=sum(tokens for tokens, _ in found),
        cpu_seconds=time.process_time() - cpu_began,
        first_token_seconds=[first for _, first in found],
    )


async def _generate(
    engine: Engine, gate: asyncio.Semaphore, call_id: str, prompt: str, max_tokens: int
) -> tuple[int, float]:
    """How many tokens, and how long the first took."""
    sampling = Sampling(max_tokens=max_tokens, temperature=0, ignore_eos=True)
    async with gate:
        began = time.monotonic()
        first, tokens = None, 0
        call = Call(f"bare:{call_id}:{began}", engine.encode(prompt), sampling)
        async for delta in engine.generate(call):
            if first is None and delta.token_ids:
                first = time.monotonic() - began
            tokens += len(delta.token_ids)
    return tokens, first or 0.0
