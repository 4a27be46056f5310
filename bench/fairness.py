"""`fairness`: how a line is shared between accounts, on the simulated engine. Ten jobs that come while another
account has 20,000 lines waiting; eight equal accounts whose jobs differ in size; two accounts, one of double
weight. Only tokens that are in Postgres count.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from sqlalchemy import func, select

from app.db import engine, transaction
from app.dispatch import wake
from app.jobs.states import Status
from app.jobs.tables import Job, JobSegment
from bench.bulk import Lines, insert
from bench.harness import BenchFailed, Platform, Tenant, open_account, platform
from bench.report import Aim, Figure, Report

SLOTS: Final = 64
STEP_SECONDS: Final = 0.01
# A model for each part: what one leaves in its line is not in the way of the next.
CROWDED, EQUAL, WEIGHTED = MODELS = ("crowded", "equal", "weighted")
CATALOGUE: Final = "".join(
    f"""
[models.{name}]
engine = "simulated"
context_tokens = 4096
slots = {SLOTS}
default_output_tokens = 64

[models.{name}.engine_options]
step_seconds = {STEP_SECONDS}
prefill_tokens_per_second = 1000000
"""
    for name in MODELS
)
CROWD_TOKENS: Final = (100, 500)  # least and most, so that slots come free one by one
FEW: Final = 10
FEW_TOKENS: Final = 300
EQUAL_TOKENS: Final = (100, 150, 200, 300, 400, 500, 600, 800)
WEIGHTED_TOKENS: Final = (200, 500)
PATIENCE_SECONDS: Final = 90.0


@dataclass(frozen=True, slots=True)
class Extent:
    crowd: int  # lines
    settle_seconds: float  # until the shares matter: at first every slot is free
    seconds: float


FULL: Final = Extent(20_000, 8.0, 30.0)
QUICK: Final = Extent(2_000, 4.0, 8.0)


def measure(report: Report, *, quick: bool) -> None:
    extent = QUICK if quick else FULL
    with platform(CATALOGUE) as started:
        started.start_background()
        started.start_dispatcher()
        for model, part in ((CROWDED, _behind_a_crowd), (EQUAL, _equal), (WEIGHTED, _weighted)):
            started.start_worker(model)
            part(report, started, extent)
            started.kill("gpu")


def _behind_a_crowd(report: Report, started: Platform, extent: Extent) -> None:
    crowd = open_account("crowd")
    _fill({crowd: CROWD_TOKENS}, CROWDED, extent.crowd)
    _wait_until_full(CROWDED, crowd)
    time.sleep(extent.settle_seconds)
    few = open_account("few")
    body = {"model": CROWDED, "tier": "batch", "input": "Tell me about ships.", "ignore_eos": True}
    ids = started.submit([{**body, "max_output_tokens": FEW_TOKENS}] * FEW, few)
    rows = _ended(ids)
    wait_seconds = max((row.finished_at - row.created_at).total_seconds() for row in rows)
    run_seconds = median((row.finished_at - row.claimed_at).total_seconds() for row in rows)
    report.add(
        Figure(
            f"{FEW} jobs behind {extent.crowd:,} lines",
            wait_seconds,
            "s",
            # With half of all slots, which come free one after the other: the last of the ten begins when
            # that many of them have, and runs.
            reference=run_seconds * (1 + FEW / (SLOTS / 2)),
            aim=Aim("ratio", "<=", 1.5),
        )
    )
    report.note(f"One of the {FEW} jobs ran for {run_seconds:.2f} s. {_first_in_first_out(extent)}")


def _first_in_first_out(extent: Extent) -> str:
    seconds = extent.crowd * sum(CROWD_TOKENS) / 2 * STEP_SECONDS / SLOTS
    return f"First in, first out would have let them wait for {seconds:,.0f} s."


def _equal(report: Report, _: Platform, extent: Extent) -> None:
    accounts = {open_account(f"equal {tokens}"): (tokens, tokens) for tokens in EQUAL_TOKENS}
    _fill(accounts, EQUAL, 1_000)
    rates = _rates(EQUAL, accounts, extent)
    report.add(
        Figure(
            f"Jain's index of {len(accounts)} equal accounts",
            sum(rates) ** 2 / (len(rates) * sum(rate**2 for rate in rates)),
            "",
            reference=1,
            aim=Aim("value", ">=", 0.95),
        )
    )
    shown = ", ".join(f"{rate:,.0f}" for rate in rates)
    report.note(f"Tokens/s of the equal accounts, whose jobs have {EQUAL_TOKENS} tokens: {shown}.")


def _weighted(report: Report, _: Platform, extent: Extent) -> None:
    accounts = {open_account("single"): WEIGHTED_TOKENS, open_account("double", weight=2): WEIGHTED_TOKENS}
    _fill(accounts, WEIGHTED, 2_000)
    single, double = _rates(WEIGHTED, accounts, extent)
    report.add(
        Figure("tokens of weight 2 over weight 1", double / single, "", reference=2),
        Figure("that ratio's distance from 2", abs(double / single / 2 - 1), "", aim=Aim("value", "<=", 0.15)),
    )


def _fill(accounts: Mapping[Tenant, tuple[int, int]], model: str, count: int) -> None:
    """So many lines of each account, with output tokens from least to most."""
    for tenant, (least, most) in accounts.items():
        insert(engine(), Lines(tenant.account_id, model, count, least, most))
    wake()


def _rates(model: str, accounts: Mapping[Tenant, Any], extent: Extent) -> list[float]:
    """Tokens/s of each account over the time that is measured."""
    _wait_until_full(model, *accounts)
    time.sleep(extent.settle_seconds)
    before, began = _stored_tokens(model), time.monotonic()
    time.sleep(extent.seconds)
    after, seconds = _stored_tokens(model), time.monotonic() - began
    rates = [
        (after.get(tenant.account_id, 0) - before.get(tenant.account_id, 0)) / seconds for tenant in accounts
    ]
    if not all(rates):
        raise BenchFailed(f"Accounts of '{model}' were given nothing: {rates}.")
    return rates


def _stored_tokens(model: str) -> dict[str, int]:
    """By account id."""
    tokens = func.sum(func.octet_length(JobSegment.token_ids)) / 4
    by_account = (
        select(Job.account_id, tokens)
        .join(JobSegment, JobSegment.job_id == Job.id)
        .where(Job.model == model)
        .group_by(Job.account_id)
    )
    with transaction() as session:
        return {account_id: int(count) for account_id, count in session.execute(by_account)}


def _wait_until_full(model: str, *tenants: Tenant) -> None:
    """Every slot taken, and somebody of every account running."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    running = select(Job.account_id).where(Job.model == model, Job.status == Status.IN_PROGRESS)
    found: Sequence[str] = []
    while len(found) < SLOTS - SLOTS // 16 or not {tenant.account_id for tenant in tenants} <= set(found):
        if time.monotonic() > deadline:
            raise BenchFailed(f"Only {len(found)} of {SLOTS} slots of '{model}' were taken in time.")
        time.sleep(0.1)
        with transaction() as session:
            found = session.scalars(running).all()


def _ended(ids: Sequence[str]) -> Sequence[Any]:
    """The rows of the jobs, once all have ended."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    wanted = select(Job.created_at, Job.claimed_at, Job.finished_at).where(Job.id.in_(ids))
    rows: Sequence[Any] = []
    while not rows or any(row.finished_at is None for row in rows):
        if time.monotonic() > deadline:
            raise BenchFailed(f"Of {len(ids)} jobs behind the crowd not all ended in {PATIENCE_SECONDS:.0f} s.")
        time.sleep(0.1)
        with transaction() as session:
            rows = session.execute(wanted).all()
    return rows
