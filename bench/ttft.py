"""`ttft`: from submitting over HTTP to the first `output.delta` on a WebSocket, minus the bare engine's own
time to its first token. One job at a time, the two in turn, so that both meet the same moments.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from bench.bare import Order, run_bare
from bench.clients import Client, Seen, connected
from bench.harness import Platform, platform
from bench.report import Aim, Figure, Report, percentile

# The simulated engine's own time is known: one step. The real one shows what its work does to ours.
MODELS: Final = ("simulated", "smollm2")
AIM: Final = Aim("value", "<=", 10)
TOKENS: Final = 4
WARM_UP: Final = 5
FULL: Final = (100, 120.0)  # jobs of each kind, and the seconds after which there are no more
QUICK: Final = (20, 8.0)


def measure(report: Report, *, quick: bool) -> None:
    with platform() as started:
        started.start_web()
        started.start_background()
        started.start_dispatcher()
        for model in MODELS:
            started.start_worker(model)
            whole, bare = asyncio.run(_alternate(started, model, *(QUICK if quick else FULL)))
            started.kill("gpu")
            report.add(*_figures(model, whole, bare))


def _figures(model: str, whole: Sequence[float], bare: Sequence[float]) -> list[Figure]:
    """Milliseconds from seconds."""
    figures = []
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        mine, reference = 1000 * percentile(whole, share), 1000 * percentile(bare, share)
        figures += [
            Figure(f"{model}: first token {name}", mine, "ms", reference),
            Figure(f"{model}: added {name}", mine - reference, "ms", aim=AIM if name == "p50" else None),
        ]
    return figures


async def _alternate(
    started: Platform, model: str, jobs: int, seconds: float
) -> tuple[list[float], list[float]]:
    whole: list[float] = []
    bare: list[float] = []
    end = time.monotonic() + seconds
    async with connected(started.url, started.key) as client:
        while len(bare) < WARM_UP + jobs and (len(bare) <= WARM_UP or time.monotonic() < end):
            number = len(bare)
            # The numbers come first: no prompt begins like an earlier one, whose prefix is cached.
            whole.append(await _first_delta(client, model, f"{2 * number}: what is the capital of France?"))
            order = Order([f"{2 * number + 1}: what is the capital of France?"], TOKENS, 1)
            bare += (await asyncio.to_thread(run_bare, order)).first_token_seconds
    return whole[WARM_UP:], bare[WARM_UP:]


async def _first_delta(client: Client, model: str, prompt: str) -> float:
    """Seconds. The job is followed to its end, so that the next finds the engine idle."""
    body = {"model": model, "input": prompt, "max_output_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    began = time.monotonic()
    seen: Seen = await client.follow(await client.submit(body))
    return seen.first_delta_at - began
