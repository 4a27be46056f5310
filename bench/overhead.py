"""`overhead`: output tokens/s through the whole platform (submitted over HTTP, recorded, streamed to a
WebSocket) over the bare engine's, in alternating rounds on the same engine with the same prompts and settings.
"""

import asyncio
import time
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from bench.bare import Order, run_bare
from bench.clients import Client, connected
from bench.harness import BenchFailed, Platform, platform
from bench.report import Aim, Figure, Report

MODEL: Final = "smollm2"
AIMS: Final = {32: Aim("ratio", ">=", 0.95)}


@dataclass(frozen=True, slots=True)
class Load:
    """`jobs` generations of `tokens` tokens, `concurrency` at a time."""

    concurrency: int
    jobs: int
    tokens: int

    def prompts(self, label: str) -> list[str]:
        """No two alike: a cached prefix would help whoever comes second."""
        return [f"{label}, {index}: tell me about the sea and its ships." for index in range(self.jobs)]


FULL: Final = [Load(1, 2, 96), Load(8, 16, 96), Load(32, 64, 96)]
QUICK: Final = [Load(1, 1, 24), Load(8, 8, 24), Load(32, 32, 48)]


def measure(report: Report, *, quick: bool) -> None:
    with platform() as started:
        started.start_web()
        started.start_background()
        started.start_dispatcher()
        started.start_worker(MODEL)
        run_bare(Order(["warm up"] * 8, 8, 8))
        run_platform(started, Load(8, 8, 8), "warm up")
        for load in QUICK if quick else FULL:
            report.add(_compare(started, load, rounds=1 if quick else 3))


def _compare(started: Platform, load: Load, rounds: int) -> Figure:
    bare, whole = [], []
    for number in range(rounds):
        order = Order(load.prompts(f"bare {number}"), load.tokens, load.concurrency)
        bare.append(run_bare(order).tokens_per_second)
        whole.append(run_platform(started, load, f"whole {number}"))
    ratios = [mine / reference for mine, reference in zip(whole, bare, strict=True)]
    return Figure(
        f"output at {load.concurrency} concurrent",
        median(whole),
        "tokens/s",
        reference=median(whole) / median(ratios),
        aim=AIMS.get(load.concurrency),
        rounds=ratios,
    )


def run_platform(started: Platform, load: Load, label: str) -> float:
    """Tokens a second, from the first submission to the last terminal event."""
    return asyncio.run(_run(started, load, label))


async def _run(started: Platform, load: Load, label: str) -> float:
    gate = asyncio.Semaphore(load.concurrency)
    async with connected(started.url, started.key) as client:
        began = time.monotonic()
        counts = await asyncio.gather(*(_job(client, gate, load, prompt) for prompt in load.prompts(label)))
        return sum(counts) / (time.monotonic() - began)


async def _job(client: Client, gate: asyncio.Semaphore, load: Load, prompt: str) -> int:
    body: dict[str, Any] = {
        "model": MODEL,
        "input": prompt,
        "max_output_tokens": load.tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    async with gate:
        seen = await client.follow(await client.submit(body))
    if seen.output_tokens != load.tokens:
        raise BenchFailed(f"A job gave {seen.output_tokens} tokens instead of {load.tokens}: {seen.status}.")
    return seen.output_tokens
