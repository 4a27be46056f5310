"""`overload`: interactive jobs arrive at half to three times what the simulated engine can do, over HTTP, in a
line whose longest wait is a few seconds. What is accepted waits no longer than that and ends whole; what is
refused is told so at once; and the line does not flap between the two.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from sqlalchemy import func, select

from app.db import transaction
from app.gate.shedding import find_shedding
from app.jobs.tables import Job
from app.redis import client as redis
from bench.clients import Client, connected
from bench.harness import BenchFailed, platform
from bench.report import Aim, Figure, Report, percentile
from config.queues import Tier

MODEL: Final = "overload"
SLOTS: Final = 16
STEP_SECONDS: Final = 0.01
TOKENS: Final = 100
MAX_WAIT_SECONDS: Final = 5.0
LOW_MARK: Final = 0.5
CATALOGUE: Final = f"""
[models.{MODEL}]
engine = "simulated"
context_tokens = 4096
slots = {SLOTS}
default_output_tokens = {TOKENS}

[models.{MODEL}.engine_options]
step_seconds = {STEP_SECONDS}
prefill_tokens_per_second = 1000000

[models.{MODEL}.line.interactive]
max_jobs = 100000
max_tokens = 100000000
max_wait_seconds = {MAX_WAIT_SECONDS}
low_mark = {LOW_MARK}
"""
BODY: Final[dict[str, Any]] = {
    "model": MODEL,
    "input": "Tell me about the sea.",
    "max_output_tokens": TOKENS,
    "ignore_eos": True,
}
CAPACITY_JOBS: Final = 5 * SLOTS
RATIOS: Final = (0.5, 0.9, 1.5, 3.0)
REFUSED: Final = 429
# The wait is foretold with rates of the last seconds, and counted from measures that are half a second old.
WAIT_AIM: Final = Aim("ratio", "<=", 1.2)
REFUSAL_AIM: Final = Aim("value", "<=", 20)
FLAPPING_AIM: Final = Aim("ratio", "<=", 1.5)
PING_SECONDS: Final = 0.05
PATIENCE_SECONDS: Final = 60.0


@dataclass(slots=True)
class Arrivals:
    """What became of those of one rate; latencies in seconds."""

    accepted: list[str] = field(default_factory=list)
    refusals: list[float] = field(default_factory=list)
    pings: list[float] = field(default_factory=list)  # meanwhile: what doing nothing took
    untold: int = 0  # refusals without a Retry-After
    transitions: int = 0


def measure(report: Report, *, quick: bool) -> None:
    seconds = 6.0 if quick else 30.0
    with platform(CATALOGUE) as started:
        started.start_web()
        started.start_background()
        started.start_dispatcher()
        started.start_worker(MODEL)
        asyncio.run(_measure(report, started.url, started.key, seconds))


async def _measure(report: Report, url: str, key: str, seconds: float) -> None:
    async with connected(url, key) as client:
        capacity = await _capacity(client)
        nominal = SLOTS / TOKENS / STEP_SECONDS
        report.add(Figure("capacity", capacity, "jobs/s", reference=nominal))
        for ratio in RATIOS:
            arrivals = await _arrive(client, capacity * ratio, seconds)
            whole = await _all_ended(arrivals.accepted)
            report.add(*_figures(ratio, arrivals, whole, seconds))
            report.note(_note(ratio, arrivals, seconds))


async def _capacity(client: Client) -> float:
    """Jobs a second that end while all slots are busy, once the first of each slot has: of a line that is short
    enough to be accepted whole.
    """
    ids = await asyncio.gather(*(client.submit(BODY) for _ in range(CAPACITY_JOBS)))
    await _all_ended(ids)
    with transaction() as session:
        finished = select(Job.finished_at).where(Job.id.in_(ids)).order_by(Job.finished_at)
        ends = [end for end in session.scalars(finished) if end]
    return (len(ends) - SLOTS) / (ends[-1] - ends[SLOTS - 1]).total_seconds()


async def _arrive(client: Client, rate: float, seconds: float) -> Arrivals:
    """Independent arrivals (Poisson), `rate` a second, whatever the server says."""
    chance = random.Random(1)
    found = Arrivals()
    before = _transitions()
    due = time.monotonic()
    end = due + seconds
    async with asyncio.TaskGroup() as group:
        pinging = group.create_task(_ping(client, found))
        while due < end:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            group.create_task(_submit(client, found))
            due += chance.expovariate(rate)
        pinging.cancel()
    found.transitions = _transitions() - before
    return found


def _transitions() -> int:
    """How often the line began or ended to refuse work."""
    line = (MODEL, Tier.INTERACTIVE)
    return find_shedding(redis(), [line])[line].transitions


async def _ping(client: Client, found: Arrivals) -> None:
    while True:
        began = time.monotonic()
        await client.ping()
        found.pings.append(time.monotonic() - began)
        await asyncio.sleep(PING_SECONDS)


async def _submit(client: Client, found: Arrivals) -> None:
    began = time.monotonic()
    headers = {"Content-Type": "application/json"}
    async with client.session.post(f"{client.url}/v1/jobs", data=orjson.dumps(BODY), headers=headers) as answer:
        content = await answer.read()
        if answer.status == REFUSED:
            found.refusals.append(time.monotonic() - began)
            found.untold += "Retry-After" not in answer.headers
            return
        if not answer.ok:
            raise BenchFailed(f"{answer.status}: {content.decode()}")
        found.accepted.append(orjson.loads(content)["id"])


async def _all_ended(ids: Sequence[str]) -> int:
    """How many gave all their tokens, once all have ended."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := _times(ids, func.count().filter(Job.finished_at.is_(None)))[0]:
        if time.monotonic() > deadline:
            raise BenchFailed(f"{left} of {len(ids)} accepted jobs did not end.")
        await asyncio.sleep(0.2)
    whole: int = _times(ids, func.count().filter(Job.output_tokens == TOKENS))[0]
    return whole


def _times(ids: Sequence[str], *wanted: Any) -> Any:
    with transaction() as session:
        return session.execute(select(*wanted).where(Job.id.in_(ids))).one()


def _waits(ids: Sequence[str]) -> list[float]:
    """From submission to claim, in seconds."""
    waited = func.extract("epoch", Job.started_at - Job.created_at)
    with transaction() as session:
        return [float(seconds) for seconds in session.scalars(select(waited).where(Job.id.in_(ids)))]


def _figures(ratio: float, arrivals: Arrivals, whole: int, seconds: float) -> list[Figure]:
    name = f"{ratio:g} x capacity"
    figures = [
        Figure(
            f"{name}: wait p95 of the accepted",
            percentile(_waits(arrivals.accepted), 0.95),
            "s",
            reference=MAX_WAIT_SECONDS,
            aim=WAIT_AIM,
        ),
        Figure(
            f"{name}: accepted jobs that ended whole",
            whole,
            "jobs",
            reference=len(arrivals.accepted),
            aim=Aim("ratio", ">=", 1),
        ),
    ]
    if arrivals.refusals:
        for part, share in (("p50", 0.5), ("p99", 0.99)):
            figures.append(
                Figure(
                    f"{name}: refusal {part}",
                    1000 * percentile(arrivals.refusals, share),
                    "ms",
                    reference=1000 * percentile(arrivals.pings, share),
                    aim=REFUSAL_AIM if part == "p99" else None,
                )
            )
    if ratio > 1:
        a_minute = arrivals.transitions * 60 / seconds
        figures.append(
            Figure(
                f"{name}: shedding began or ended",
                a_minute,
                "a minute",
                reference=_least_transitions(ratio),
                aim=FLAPPING_AIM,
            )
        )
    return figures


def _least_transitions(ratio: float) -> float:
    """A minute, of a line that goes from its low mark to its high one and back as a fluid would."""
    between_seconds = (1 - LOW_MARK) * MAX_WAIT_SECONDS
    return 2 * 60 / (between_seconds / (ratio - 1) + between_seconds)


def _note(ratio: float, arrivals: Arrivals, seconds: float) -> str:
    accepted, refused = len(arrivals.accepted), len(arrivals.refusals)
    text = f"{ratio:g} x capacity: {accepted} accepted, {refused} refused in {seconds:.0f} s"
    if arrivals.untold:
        text += f", {arrivals.untold} of them without a Retry-After"
    return f"{text}; shedding began or ended {arrivals.transitions} times."
