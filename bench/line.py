"""`line`: what interactive and batch jobs that share one engine do to each other, against two plain Celery
queues (`bench.plain`) under the same load. A first token counts from submitting over HTTP to the first delta
on a WebSocket. `--engine vllm` measures the real engine, `simulated` one that never gets slower.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Final

from sqlalchemy import Row, func, select

from app.db import transaction
from app.jobs.states import Status
from app.jobs.tables import Job
from bench.clients import Client, Seen, connected
from bench.harness import BenchFailed, platform
from bench.plain import ring_all
from bench.report import Aim, Figure, Report, percentile
from config.catalogue import catalogue
from config.queues import Tier

CATALOGUE: Final = """
[models.line]
engine = "simulated"
context_tokens = 4096
slots = 32
default_output_tokens = 64

[models.line.engine_options]
step_seconds = 0.04
prefill_tokens_per_second = 4000
"""


@dataclass(frozen=True, slots=True)
class Load:
    """`jobs` batch jobs of `tokens` tokens. Interactive ones: `idle` on the idle engine, then, while the batch
    fills it, one every `every_seconds`.
    """

    model: str
    tokens: int
    jobs: int = 64
    idle: int = 20
    every_seconds: float = 1.5
    interactive_tokens: int = 32


LOADS: Final = {"vllm": Load("smollm2", tokens=128), "simulated": Load("line", tokens=400)}
STEPS: Final = 3  # how many decode steps an interactive job may wait longer than on the idle engine
FOLLOWED: Final = 8  # batch jobs whose streams tell how long a step takes
PATIENCE_SECONDS: Final = 240.0


@dataclass(slots=True)
class Batch:
    """What became of a batch, and of the interactive jobs that came meanwhile."""

    tokens_per_second: float
    whole: int  # jobs with all their tokens
    preemptions: int
    step_seconds: float
    first_tokens: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Side:
    """What was measured with one way to queue; times are seconds."""

    idle: list[float]
    alone: Batch
    loaded: Batch


Ring = Callable[[Iterable[str], Tier], None]


def measure(report: Report, *, quick: bool, engine: str = "simulated") -> None:
    load = LOADS[engine]
    if quick:
        load = replace(load, tokens=load.tokens // 4, idle=5, every_seconds=0.5)
    with platform(CATALOGUE) as started:
        started.start_web()
        started.start_background()
        started.start_dispatcher()
        started.start_worker(load.model)
        ours = asyncio.run(_Bench(load, lambda _, __: None).run(started.url, started.key))
        started.kill("gpu")
        started.stop("dispatcher")
        started.start_worker(load.model, app="bench.plain")
        plain = asyncio.run(_Bench(load, ring_all).run(started.url, started.key))
    report.add(*_figures(load, ours, plain))
    report.note(
        f"{load.jobs} batch jobs of {load.tokens} tokens on {_slots(load)} slots. Interactive: {load.idle} "
        f"on the idle engine; one every {load.every_seconds} s while batch would fill it, "
        f"{len(ours.loaded.first_tokens)}, and {len(plain.loaded.first_tokens)} with the plain queues."
    )


def _figures(load: Load, ours: Side, plain: Side) -> list[Figure]:
    step = ours.alone.step_seconds
    bound = percentile(ours.idle, 0.95) + STEPS * step
    busy = ours.loaded.first_tokens
    whole = min(ours.alone.whole, ours.loaded.whole)
    figures = [
        _milliseconds(f"first token, idle, {name}", ours.idle, plain.idle, share) for name, share in _SHARES
    ]
    figures += [
        _milliseconds(f"first token under batch, {name}", busy, plain.loaded.first_tokens, share)
        for name, share in _SHARES
    ]
    return [
        *figures,
        Figure("one decode step, all slots busy", 1000 * step, "ms", 1000 * plain.alone.step_seconds),
        Figure(
            f"first token under batch, p95, over idle + {STEPS} steps",
            1000 * percentile(busy, 0.95),
            "ms",
            reference=1000 * bound,
            aim=Aim("ratio", "<=", 1),
        ),
        Figure(
            "batch alone",
            ours.alone.tokens_per_second,
            "tokens/s",
            reference=plain.alone.tokens_per_second,
            aim=Aim("ratio", ">=", 0.95),
        ),
        Figure(
            "batch beside interactive",
            ours.loaded.tokens_per_second,
            "tokens/s",
            reference=plain.loaded.tokens_per_second,
        ),
        Figure("batch jobs that got every token", whole, "jobs", load.jobs, aim=Aim("ratio", ">=", 1)),
        Figure("preemptions", ours.loaded.preemptions, "", reference=plain.loaded.preemptions),
    ]


_SHARES: Final = (("p50", 0.5), ("p95", 0.95))


def _milliseconds(name: str, mine: list[float], reference: list[float], share: float) -> Figure:
    return Figure(name, 1000 * percentile(mine, share), "ms", 1000 * percentile(reference, share))


def _slots(load: Load) -> int:
    return catalogue()[load.model].slots


class _Bench:
    """One way to queue; `ring` is called once jobs are submitted, where the platform does not do that."""

    def __init__(self, load: Load, ring: Ring) -> None:
        self._load = load
        self._ring = ring
        self._slots = _slots(load)
        self._number = 0

    async def run(self, url: str, key: str) -> Side:
        async with connected(url, key) as client:
            await self._batch(client, jobs=self._slots, tokens=8)  # warm up
            idle = [await self._interactive(client) for _ in range(2 + self._load.idle)]
            loaded = await self._batch(client, self._load.jobs, self._load.tokens, is_disturbed=True)
            alone = await self._batch(client, self._load.jobs, self._load.tokens)
        return Side(idle[2:], alone, loaded)

    async def _submit(self, client: Client, tier: Tier, tokens: int) -> str:
        self._number += 1
        # The number comes first: no prompt begins like an earlier one, whose prefix is cached.
        prompt = f"{self._number}: tell me about the sea and its ships."
        body: dict[str, Any] = {"model": self._load.model, "tier": tier, "input": prompt, "temperature": 0}
        job_id = await client.submit({**body, "max_output_tokens": tokens, "ignore_eos": True})
        if tier is Tier.INTERACTIVE:
            self._ring([job_id], tier)
        return job_id

    async def _interactive(self, client: Client) -> float:
        """Seconds to the first token; followed to the end."""
        began = time.monotonic()
        seen = await client.follow(await self._submit(client, Tier.INTERACTIVE, self._load.interactive_tokens))
        _expect(seen.output_tokens == self._load.interactive_tokens, f"Too few tokens: {seen}")
        return seen.first_delta_at - began

    async def _batch(self, client: Client, jobs: int, tokens: int, *, is_disturbed: bool = False) -> Batch:
        ids = [await self._submit(client, Tier.BATCH, tokens) for _ in range(jobs)]
        self._ring(ids, Tier.BATCH)
        async with asyncio.TaskGroup() as group:
            followed = [group.create_task(client.follow(job_id)) for job_id in ids[:: max(1, jobs // FOLLOWED)]]
            trickle = group.create_task(self._trickle(client, ids)) if is_disturbed else None
            rows = await _ended(ids)
        seconds = (max(row.finished_at for row in rows) - min(row.started_at for row in rows)).total_seconds()
        return Batch(
            tokens_per_second=sum(row.output_tokens for row in rows) / seconds,
            whole=sum(row.output_tokens == tokens for row in rows),
            preemptions=sum(row.preemptions for row in rows),
            step_seconds=median(_step_seconds(task.result()) for task in followed),
            first_tokens=trickle.result() if trickle else [],
        )

    async def _trickle(self, client: Client, ids: list[str]) -> list[float]:
        """Interactive jobs as long as the batch would fill every slot."""
        running = Job.status == Status.IN_PROGRESS
        while await asyncio.to_thread(_count, ids, running) < self._slots:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.05)
        async with asyncio.TaskGroup() as group:
            came = []
            while await asyncio.to_thread(_count, ids, Job.finished_at.is_(None)) >= self._slots:
                came.append(group.create_task(self._interactive(client)))
                await asyncio.sleep(self._load.every_seconds)
        _expect(bool(came), "The batch ended before it filled every slot.")
        return [task.result() for task in came]


def _step_seconds(seen: Seen) -> float:
    """Between two tokens of a stream, on average."""
    return (seen.last_delta_at - seen.first_delta_at) / max(1, seen.output_tokens - 1)


async def _ended(ids: list[str]) -> list[Row[Any]]:
    """The rows of the jobs, once all have ended."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := await asyncio.to_thread(_count, ids, Job.finished_at.is_(None)):
        _expect(time.monotonic() < deadline, f"{left} of {len(ids)} batch jobs did not end.")
        await asyncio.sleep(0.2)
    columns = (Job.output_tokens, Job.started_at, Job.finished_at, Job.preemptions)
    with transaction() as session:
        return list(session.execute(select(*columns).where(Job.id.in_(ids))))


def _count(ids: list[str], condition: Any) -> int:
    with transaction() as session:
        return session.scalar(select(func.count()).where(Job.id.in_(ids), condition)) or 0


def _expect(condition: bool, otherwise: str) -> None:  # noqa: FBT001 - it is what is expected
    if not condition:
        raise BenchFailed(otherwise)
