"""Where a waiting job stands and when it starts, foretold from what was measured: weighted fair sharing as if
work were a fluid. By the time that an account was given what stands before the job, each other account was
given as much for its weight, or all that it has. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeVar

from app.line.measures import AccountMeasure, Measure
from app.line.tables import LineState
from config.queues import Tier

# A measure older than this still says where a job stands, but no more when it starts.
STALE_SECONDS: Final = 30.0
# Nobody is told of a time further away than this.
FORESEEN_SECONDS: Final = 30 * 86_400.0

Job = TypeVar("Job")


@dataclass(frozen=True, slots=True)
class Ahead:
    """What goes before a job."""

    jobs: float = 0
    tokens: float = 0

    def __add__(self, other: "Ahead") -> "Ahead":
        return Ahead(self.jobs + other.jobs, self.tokens + other.tokens)


@dataclass(frozen=True, slots=True)
class Waiter:
    """A job that waits: `ahead` is what its own account has before it, `tokens` its own reservation."""

    account_id: str
    ahead: Ahead = Ahead()
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """`position` is 1 for the one that goes next; a time is None where nothing foretells it."""

    position: int
    estimated_start_at: datetime | None = None
    estimated_finish_at: datetime | None = None


def estimate(waiter: Waiter, line: Measure, other: Measure | None, now: datetime) -> Place:
    """`other` is the line of the model's other tier."""
    before = _goes_before(line, other)
    ahead = waiter.ahead + served_meanwhile(waiter, line.accounts)
    position = 1 + round(ahead.jobs + before.jobs)
    wait_seconds = _wait_seconds(waiter, ahead, before, line, other)
    if wait_seconds is None or wait_seconds > FORESEEN_SECONDS or _is_stale(line, now):
        return Place(position)
    start_at = now + timedelta(seconds=wait_seconds)
    run_seconds = _run_seconds(waiter.tokens, line, other)
    if run_seconds is None or run_seconds > FORESEEN_SECONDS:
        return Place(position, start_at)
    return Place(position, start_at, start_at + timedelta(seconds=run_seconds))


def about_to_start(tokens: int, line: Measure, other: Measure | None, now: datetime) -> Place:
    """The place of a job that is on its way to a worker."""
    run_seconds = None if _is_stale(line, now) else _run_seconds(tokens, line, other)
    return Place(1, now, None if run_seconds is None else now + timedelta(seconds=run_seconds))


def served_meanwhile(waiter: Waiter, accounts: Mapping[str, AccountMeasure]) -> Ahead:
    """What other accounts are given while what is ahead of a job in its own account is served."""
    own = accounts.get(waiter.account_id, AccountMeasure(0, 0))
    virtual_tokens = waiter.ahead.tokens / own.weight
    jobs = tokens = 0.0
    for account_id, account in accounts.items():
        if account_id != waiter.account_id and account.tokens > 0:
            share = min(1.0, virtual_tokens * account.weight / account.tokens)
            jobs += share * account.jobs
            tokens += share * account.tokens
    return Ahead(jobs, tokens)


def extrapolated(counted: Ahead, account: AccountMeasure, share_beyond: float) -> Ahead:
    """What is ahead in an account of which only the first jobs were counted: of the others, `share_beyond`."""
    return Ahead(
        counted.jobs + max(0.0, account.jobs - counted.jobs) * share_beyond,
        counted.tokens + max(0.0, account.tokens - counted.tokens) * share_beyond,
    )


def in_order(accounts: Iterable[tuple[float, Sequence[tuple[Job, int]]]]) -> list[Job]:
    """Jobs of several accounts as they are expected to start. Each account is its weight and its jobs,
    the first one first, with their tokens.
    """
    turns: list[tuple[float, int, int, Job]] = []
    for account, (weight, jobs) in enumerate(accounts):
        virtual_tokens = 0.0
        for nth, (job, tokens) in enumerate(jobs):
            turns.append((virtual_tokens, nth, account, job))
            virtual_tokens += max(1, tokens) / weight
    return [job for _, _, _, job in sorted(turns, key=lambda turn: turn[:3])]


def _goes_before(line: Measure, other: Measure | None) -> Ahead:
    """Interactive jobs that wait go before every batch job of their model."""
    if line.tier is Tier.INTERACTIVE or other is None or other.state is LineState.PAUSED:
        return Ahead()
    return Ahead(other.jobs, other.tokens)


def _wait_seconds(
    waiter: Waiter, ahead: Ahead, before: Ahead, line: Measure, other: Measure | None
) -> float | None:
    """Free slots take the first ones at once. Whoever finds none waits for what is ahead, and then for a slot:
    one comes free about as often as the line takes a usual job in.
    """
    if line.state is LineState.PAUSED or not line.slots:
        return None
    jobs = ahead.jobs + before.jobs
    if round(jobs) < line.free_slots:
        return 0.0
    rate = _tokens_per_second(line, other)
    if not rate:
        return None
    share_that_waits = max(0.0, 1 - line.free_slots / jobs) if jobs else 1.0
    usual_tokens = line.tokens / line.jobs if line.jobs else waiter.tokens
    seconds = (ahead.tokens * share_that_waits + usual_tokens) / rate
    if before.tokens and other is not None:
        # They have all slots.
        seconds += before.tokens * share_that_waits / (other.tokens_per_second or rate)
    return seconds


def _run_seconds(tokens: int, line: Measure, other: Measure | None) -> float | None:
    """How long one slot is busy with so many reserved tokens."""
    rate = _tokens_per_second(line, other)
    return tokens * _usable_slots(line, other) / rate if rate and line.slots else None


def _tokens_per_second(line: Measure, other: Measure | None) -> float:
    """A line in which nothing ended lately moves as fast as the other one, slot for slot; 0 is unknown."""
    if line.tokens_per_second or other is None or not other.slots:
        return line.tokens_per_second
    return other.tokens_per_second * _usable_slots(line, other) / _usable_slots(other, line)


def _usable_slots(line: Measure, other: Measure | None) -> int:
    """Batch jobs have what interactive ones leave; a measure's `tokens_per_second` is that of these slots."""
    taken = other.running if other is not None and line.tier is Tier.BATCH else 0
    return max(1, line.slots - taken)


def _is_stale(line: Measure, now: datetime) -> bool:
    return (now - line.measured_at).total_seconds() > STALE_SECONDS
