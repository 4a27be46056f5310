"""`submit`: submissions a second on one web process, and their latency at a fixed rate. The reference is the
same web process answering `/livez`, which does nothing: what is left is what submitting costs.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import aiohttp
import psutil

from bench.clients import connected
from bench.harness import Platform, platform
from bench.report import Aim, Figure, Report, percentile

MODEL: Final = "submit"
# A line that takes all that comes: refusing is cheaper than accepting.
CATALOGUE: Final = f"""
[models.{MODEL}]
engine = "simulated"
context_tokens = 4096
slots = 4
default_output_tokens = 4

[models.{MODEL}.line.interactive]
max_jobs = 1000000
max_tokens = 1000000000
max_wait_seconds = 86400
"""
RATE: Final = 200.0
AIM: Final = Aim("value", "<=", 25)
IN_FLIGHT: Final = 400  # open requests at once; more wait, on the clock
CLOSED_LOOP_CLIENTS: Final = 16
# Few slots and short outputs: the line grows, as it does where submissions come this fast.
BODY: Final = {"model": MODEL, "input": "What is the capital of France?", "max_output_tokens": 4}

Action = Callable[[], Awaitable[object]]


def measure(report: Report, *, quick: bool) -> None:
    seconds = 4.0 if quick else 30.0
    with platform(CATALOGUE, LONGHAUL_REQUESTS_PER_MINUTE="0", LONGHAUL_MAX_WAITING_JOBS="0") as started:
        web = started.start_web()
        started.start_background()
        started.start_dispatcher()
        started.start_worker(MODEL)
        asyncio.run(_measure(report, started, web, seconds))


async def _measure(report: Report, started: Platform, web: psutil.Process, seconds: float) -> None:
    async with connected(started.url, started.key) as client:

        async def submit() -> None:
            await client.submit(BODY)

        async def live() -> None:
            await client.ping()

        await _closed_loop(submit, 1.0)
        idle = await _open_loop(live, seconds / 2)
        cpu = _cpu_seconds(web)
        busy = await _open_loop(submit, seconds)
        cpu_ms = 1000 * (_cpu_seconds(web) - cpu) / len(busy)
        report.note(f"{len(busy)} of about {RATE * seconds:.0f} submissions were accepted at {RATE:.0f}/s.")
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            report.add(
                Figure(
                    f"submit {name} at {RATE:.0f}/s",
                    1000 * percentile(busy, share),
                    "ms",
                    reference=1000 * percentile(idle, share),
                    aim=AIM if name == "p99" else None,
                )
            )
        report.add(
            Figure(
                f"submissions by {CLOSED_LOOP_CLIENTS} clients",
                await _closed_loop(submit, seconds / 3),
                "/s",
                reference=await _closed_loop(live, seconds / 6),
            ),
            Figure("web CPU a submission", cpu_ms, "ms"),
        )


async def _open_loop(action: Action, seconds: float) -> list[float]:
    """Latencies in seconds, each from the moment at which the request was due: a server (or a client) that
    falls behind is not asked less. Arrivals are independent of each other (Poisson). Refusals have none.
    """
    chance = random.Random(1)  # the same arrivals in each run
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    gate = asyncio.Semaphore(IN_FLIGHT)

    async def one(due: float) -> None:
        async with gate:
            with suppress(aiohttp.ClientError):  # a refusal: neither an answer nor the end of the bench
                await action()
                latencies.append(loop.time() - due)

    due = loop.time()
    end = due + seconds
    async with asyncio.TaskGroup() as group:
        while due < end:
            await asyncio.sleep(max(0.0, due - loop.time()))
            group.create_task(one(due))
            due += chance.expovariate(RATE)
    return latencies


async def _closed_loop(action: Action, seconds: float) -> float:
    """Requests a second when each of some clients sends its next as soon as it has an answer."""
    began = time.monotonic()

    async def one() -> int:
        done = 0
        while time.monotonic() < began + seconds:
            with suppress(aiohttp.ClientError):
                await action()
                done += 1
        return done

    counts = await asyncio.gather(*(one() for _ in range(CLOSED_LOOP_CLIENTS)))
    return sum(counts) / (time.monotonic() - began)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
