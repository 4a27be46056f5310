"""Where jobs stand in the line: what their own account has before them, counted in Postgres as far as that is
cheap, and from there on what was measured. It foretells nothing itself (`app.line.estimates`).
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, Text, bindparam, text
from sqlalchemy.orm import Session

from app import clock
from app.ids import PrefixedId
from app.jobs.states import Status
from app.jobs.tables import Job, Timestamp
from app.line.estimates import Ahead, Place, Waiter, about_to_start, estimate, extrapolated, in_order
from app.line.lines import line_of, other_tier, recent_lines
from app.line.measures import AccountMeasure, Measure
from config.queues import Tier

COUNTED_ROWS: Final = 10_000

# Two ranges of the index `jobs_line`, merged; no further than `limit` rows. `reached_at` is where the counting
# stopped, if it did, and `last_at` where the account's part of the line ends.
_AHEAD = text("""
    WITH ahead AS (
        SELECT order_at, reserved_tokens FROM (
            (SELECT order_at, id, reserved_tokens FROM jobs
            WHERE status = 'queued' AND model = :model AND tier = :tier AND is_long = false
                AND account_id = :account_id AND (order_at, id) < (:order_at, :job_id)
            ORDER BY order_at, id LIMIT :limit)
            UNION ALL
            (SELECT order_at, id, reserved_tokens FROM jobs
            WHERE status = 'queued' AND model = :model AND tier = :tier AND is_long = true
                AND account_id = :account_id AND (order_at, id) < (:order_at, :job_id)
            ORDER BY order_at, id LIMIT :limit)
        ) AS either ORDER BY order_at, id LIMIT :limit
    ), counted AS (
        SELECT count(*) AS jobs, coalesce(sum(reserved_tokens), 0) AS tokens, max(order_at) AS reached_at
        FROM ahead
    )
    SELECT jobs, tokens, reached_at,
        CASE WHEN jobs >= :limit THEN (
            SELECT max(order_at) FROM jobs WHERE status = 'queued' AND model = :model AND tier = :tier
                AND is_long = false AND account_id = :account_id
        ) END AS last_at
    FROM counted
""").bindparams(
    bindparam("job_id", type_=PrefixedId("job")),
    bindparam("account_id", type_=PrefixedId("acct")),
    bindparam("order_at", type_=Timestamp),
)


def place_of(session: Session, job: Job, ahead: Ahead | None = None) -> Place | None:
    """Where a queued job stands; None for one that does not wait. `ahead` is what of its account stands before
    it, where that is known; else it is counted, up to `COUNTED_ROWS` jobs.
    """
    if job.status is not Status.QUEUED:
        return None
    lines = recent_lines(session)
    line = line_of(lines, job.model, job.tier)
    other = line_of(lines, job.model, other_tier(job.tier))
    if job.placed_on is not None:
        return about_to_start(job.reserved_tokens, line, other, clock.now())
    if ahead is None:
        ahead = _count_ahead(session, job, line, COUNTED_ROWS)
    waiter = Waiter(job.account_id, ahead, job.reserved_tokens)
    return _not_before(job.available_at, estimate(waiter, line, other, clock.now()))


def _not_before(available_at: datetime, place: Place) -> Place:
    if place.estimated_start_at is None or available_at <= place.estimated_start_at:
        return place
    late = available_at - place.estimated_start_at
    finish_at = place.estimated_finish_at
    return Place(place.position, available_at, finish_at + late if finish_at else None)


def _count_ahead(session: Session, job: Job, line: Measure, limit: int) -> Ahead:
    found = session.execute(
        _AHEAD,
        {
            "job_id": job.id,
            "account_id": job.account_id,
            "model": job.model,
            "tier": job.tier.value,
            "order_at": job.order_at,
            "limit": limit,
        },
    ).one()
    counted = Ahead(found.jobs, int(found.tokens))
    if found.jobs < limit:
        return counted
    account = line.accounts.get(job.account_id, AccountMeasure(0, 0))
    return extrapolated(counted, account, _share_beyond(job, found))


def _share_beyond(job: Job, found: Row[Any]) -> float:
    """Of the jobs that were not counted, how many are ahead, if they stand evenly in time."""
    reached_at: datetime = found.reached_at
    last_at: datetime = found.last_at or reached_at
    if last_at <= reached_at:
        return 1.0
    return max(0.0, min(1.0, (job.order_at - reached_at) / (last_at - reached_at)))


@dataclass(frozen=True, slots=True)
class Listed:
    """A job that waits, as operators see it."""

    job_id: str
    account: str
    created_at: datetime
    tokens: int
    placed_on: str | None
    available_at: datetime


# The first jobs of each account: a loose index scan over the accounts, then a range of the index for each.
_FIRST = text("""
    SELECT accounts.name, accounts.weight, job.*
    FROM (
        WITH RECURSIVE present AS (
            (SELECT account_id FROM jobs WHERE status = 'queued' AND model = :model AND tier = :tier
                AND is_long = false ORDER BY account_id LIMIT 1)
            UNION ALL
            SELECT (SELECT account_id FROM jobs WHERE status = 'queued' AND model = :model AND tier = :tier
                AND is_long = false AND account_id > present.account_id ORDER BY account_id LIMIT 1)
            FROM present WHERE present.account_id IS NOT NULL
        ), present_long AS (
            (SELECT account_id FROM jobs WHERE status = 'queued' AND model = :model AND tier = :tier
                AND is_long = true ORDER BY account_id LIMIT 1)
            UNION ALL
            SELECT (SELECT account_id FROM jobs WHERE status = 'queued' AND model = :model AND tier = :tier
                AND is_long = true AND account_id > present_long.account_id ORDER BY account_id LIMIT 1)
            FROM present_long WHERE present_long.account_id IS NOT NULL
        )
        SELECT account_id FROM present UNION SELECT account_id FROM present_long
    ) present
    JOIN accounts ON accounts.id = present.account_id
    CROSS JOIN LATERAL (
        SELECT * FROM (
            (SELECT id, account_id, order_at, created_at, reserved_tokens, placed_on, available_at FROM jobs
            WHERE status = 'queued' AND model = :model AND tier = :tier AND is_long = false
                AND account_id = present.account_id ORDER BY order_at, id LIMIT :limit)
            UNION ALL
            (SELECT id, account_id, order_at, created_at, reserved_tokens, placed_on, available_at FROM jobs
            WHERE status = 'queued' AND model = :model AND tier = :tier AND is_long = true
                AND account_id = present.account_id ORDER BY order_at, id LIMIT :limit)
        ) AS either ORDER BY order_at, id LIMIT :limit
    ) job
    ORDER BY job.account_id, job.order_at, job.id
""").bindparams(bindparam("model", type_=Text))


def first_in_line(session: Session, model: str, tier: Tier, limit: int) -> list[Listed]:
    """The jobs that are expected to start next; those that are on their way to a worker come first."""
    accounts: dict[str, tuple[float, list[tuple[Listed, int]]]] = {}
    for row in session.execute(_FIRST, {"model": model, "tier": tier.value, "limit": limit}):
        job = Listed(
            f"job_{row.id.hex}", row.name, row.created_at, row.reserved_tokens, row.placed_on, row.available_at
        )
        accounts.setdefault(row.name, (row.weight, []))[1].append((job, row.reserved_tokens))
    ordered = in_order(accounts.values())
    return sorted(ordered, key=lambda job: job.placed_on is None)[:limit]
