"""`ceiling`: output tokens a second of one worker process on the simulated engine with 512 streams, everything
recorded: live pieces in Redis, segments in Postgres. The reference is the engine alone in the same process.
Jobs end and begin all the time; only tokens that are in Postgres count.
"""

import random
import time
from typing import Any, Final, cast

import psutil
from sqlalchemy import func, select

from app.db import transaction
from app.jobs.states import Status
from app.jobs.tables import Job, JobSegment
from app.redis import client
from bench.bare import Order, Round, run_bare
from bench.harness import BenchFailed, Platform, platform
from bench.report import Aim, Figure, Report

MODEL: Final = "ceiling"
STREAMS: Final = 512
STEP_SECONDS: Final = 0.01
CATALOGUE: Final = f"""
[models.{MODEL}]
engine = "simulated"
context_tokens = 32768
slots = {STREAMS}
default_output_tokens = 256

[models.{MODEL}.engine_options]
step_seconds = {STEP_SECONDS}
prefill_tokens_per_second = 1000000
"""
AIM: Final = Aim("value", ">=", 25_000)
PROMPT: Final = "Tell me about the sea and its ships."
OUTPUT_TOKENS: Final = (500, 1500)  # of a job, least and most
FULL_WITHIN_SECONDS: Final = 60.0
RAMP_SECONDS: Final = 5.0  # about how long it takes until all streams run


def measure(report: Report, *, quick: bool) -> None:
    seconds = 8.0 if quick else 30.0
    with platform(CATALOGUE) as started:
        started.start_background()
        started.start_dispatcher()
        worker = started.start_worker(MODEL)
        bare = run_bare(Order([PROMPT] * STREAMS, 200 if quick else 500, STREAMS))
        _fill_line(started, seconds)
        rates, cpu_seconds, tokens = _watch(worker, seconds)
        report.add(*_figures(bare, rates, cpu_seconds, tokens))
        report.note(f"The engine offers {STREAMS / STEP_SECONDS:,.0f} tokens/s at its {STEP_SECONDS} s a step.")
        pieces = _pieces()
        report.note(f"{tokens / pieces:.1f} tokens a live piece." if pieces else "No live pieces.")


def _figures(bare: Round, rates: list[float], cpu_seconds: float, tokens: int) -> list[Figure]:
    return [
        Figure(
            f"output of {STREAMS} streams",
            sum(rates) / len(rates),
            "tokens/s",
            reference=bare.tokens_per_second,
            aim=AIM,
            rounds=rates,
        ),
        Figure(
            "worker CPU a million tokens",
            cpu_seconds / tokens * 1e6,
            "s",
            reference=bare.cpu_seconds / bare.tokens * 1e6,
        ),
    ]


def _fill_line(started: Platform, seconds: float) -> None:
    """More jobs than the engine can run in the time, at the speed that it offers."""
    chance = random.Random(1)
    most = STREAMS / STEP_SECONDS * (RAMP_SECONDS + seconds)
    jobs = STREAMS + int(most / (sum(OUTPUT_TOKENS) / 2))
    started.submit(
        [
            {
                "model": MODEL,
                "input": PROMPT,
                "max_output_tokens": chance.randint(*OUTPUT_TOKENS),
                "ignore_eos": True,
            }
            for _ in range(jobs)
        ]
    )


def _watch(worker: psutil.Process, seconds: float) -> tuple[list[float], float, int]:
    """Tokens/s of each of some stretches, and CPU seconds and tokens of all of them."""
    _wait_until_full()
    client().config_resetstat()
    cpu_began, began = _cpu_seconds(worker), time.monotonic()
    first = before = _stored_tokens()
    before_at = began
    rates = []
    while before_at < began + seconds:
        time.sleep(seconds / 4)
        now, at = _stored_tokens(), time.monotonic()
        rates.append((now - before) / (at - before_at))
        before, before_at = now, at
    if before == first:
        raise BenchFailed("The worker stored nothing.")
    return rates, _cpu_seconds(worker) - cpu_began, before - first


def _wait_until_full() -> None:
    deadline = time.monotonic() + FULL_WITHIN_SECONDS
    while _running() < STREAMS - STREAMS // 32:  # some are always between two jobs
        if time.monotonic() > deadline:
            raise BenchFailed(f"Only {_running()} of {STREAMS} streams began in {FULL_WITHIN_SECONDS:.0f} s.")
        time.sleep(0.1)


def _running() -> int:
    running = select(func.count()).select_from(Job).where(Job.status == Status.IN_PROGRESS)
    with transaction() as session:
        return session.scalar(running) or 0


def _stored_tokens() -> int:
    with transaction() as session:
        found: int | None = session.scalar(select(func.sum(func.octet_length(JobSegment.token_ids)) / 4))
    return int(found or 0)


def _pieces() -> int:
    """How often the worker appended to a live tail since the statistics were reset."""
    found = cast("dict[str, dict[str, Any]]", client().info("commandstats"))
    return int(found.get("cmdstat_xadd", {}).get("calls", 0))


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
