"""What the dispatcher reads from Postgres: which workers have room, who waits, and how deep the lines are. The
first two cost the same however many wait: candidates come from the front of each account's index range, account
by account (a loose index scan). It decides nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Text, bindparam, text
from sqlalchemy.orm import Session

from app.line.measures import AccountMeasure
from app.line.plan import Account, Room, Waiting
from config.catalogue import catalogue
from config.queues import Tier, Window
from config.settings import settings

# A job that is placed on a living worker holds room there until it is claimed, or for so long.
_ROOMS = text("""
    WITH held AS (
        SELECT worker_id AS worker, tier, is_preemptible, is_long, true AS runs
        FROM jobs WHERE status = 'in_progress'
        UNION ALL
        SELECT placed_on, tier, is_preemptible, is_long, false
        FROM jobs WHERE placed_on IS NOT NULL AND rung_at > now() - make_interval(secs => :ring_after_seconds)
    )
    SELECT workers.id, workers.model, workers.slots,
        count(*) FILTER (WHERE held.tier = 'interactive') AS interactive,
        count(*) FILTER (WHERE held.tier = 'batch') AS batch,
        count(*) FILTER (WHERE held.tier = 'batch' AND is_preemptible AND runs) AS yielding,
        count(*) FILTER (WHERE held.tier = 'batch' AND NOT is_preemptible) AS aged,
        count(*) FILTER (WHERE is_long) AS long
    FROM workers LEFT JOIN held ON held.worker = workers.id
    WHERE workers.seen_at > now() - make_interval(secs => :lease_seconds) AND NOT workers.draining
    GROUP BY workers.id ORDER BY workers.id
""")


def read_rooms(session: Session) -> dict[str, list[Room]]:
    """The rooms of the workers that take jobs, by model."""
    rooms: dict[str, list[Room]] = {}
    values = {
        "ring_after_seconds": settings().ring_after_seconds,
        "lease_seconds": settings().lease_seconds,
    }
    for row in session.execute(_ROOMS, values):
        spec = catalogue().get(row.model)
        room = Room(
            worker_id=row.id,
            slots=row.slots,
            interactive=row.interactive,
            batch=row.batch,
            yielding=row.yielding,
            long=row.long,
            long_slots=spec.long_prompt_slots if spec else 1,
            aged=row.aged,
        )
        rooms.setdefault(row.model, []).append(room)
    return rooms


# Of each account at most `per_account` jobs, of at most `most_accounts` accounts: those that come (back) to the
# line, who are not active before they were seen here, then those that were given least.
_CANDIDATES = text("""
    SELECT job.*, chosen.account_id, chosen.weight, chosen.virtual_tokens, chosen.is_active, kind.tier
    FROM (VALUES ('interactive', false), ('interactive', true), ('batch', false), ('batch', true))
        AS kind(tier, is_long)
    CROSS JOIN LATERAL (
        WITH RECURSIVE present AS (
            (SELECT account_id FROM jobs WHERE status = 'queued' AND model = :model AND tier = kind.tier
                AND is_long = kind.is_long ORDER BY account_id LIMIT 1)
            UNION ALL
            SELECT (SELECT account_id FROM jobs WHERE status = 'queued' AND model = :model
                AND tier = kind.tier AND is_long = kind.is_long AND account_id > present.account_id
                ORDER BY account_id LIMIT 1)
            FROM present WHERE present.account_id IS NOT NULL
        )
        SELECT present.account_id, accounts.weight, coalesce(shares.virtual_tokens, 0) AS virtual_tokens,
            coalesce(shares.is_active, false) AS is_active
        FROM present JOIN accounts ON accounts.id = present.account_id
        LEFT JOIN shares ON shares.account_id = present.account_id AND shares.model = :model
            AND shares.tier = kind.tier
        ORDER BY is_active, virtual_tokens
        LIMIT :most_accounts
    ) chosen
    CROSS JOIN LATERAL (
        SELECT jobs.id, jobs.is_long, extract(epoch FROM order_at) AS "order",
            extract(epoch FROM jobs.created_at) AS since, extract(epoch FROM due_at) AS due,
            CASE WHEN started_at IS NULL THEN extract(epoch FROM expires_at) END AS expires,
            CASE WHEN charged_tokens = 0 THEN greatest(1, reserved_tokens) ELSE 0 END AS tokens
        FROM jobs
        WHERE status = 'queued' AND jobs.model = :model AND jobs.tier = kind.tier
            AND jobs.is_long = kind.is_long AND jobs.account_id = chosen.account_id AND available_at <= now()
            AND (placed_on IS NULL OR rung_at <= now() - make_interval(secs => :ring_after_seconds)
                OR NOT placed_on = ANY(:alive))
        ORDER BY jobs.order_at, jobs.id LIMIT :per_account
    ) job
""").bindparams(bindparam("model", type_=Text))


@dataclass(frozen=True, slots=True)
class Candidates:
    """Those who may go next; `newcomers` are the accounts that were away from a line: (account id, tier)."""

    waiting: list[Waiting]
    accounts: dict[str, Account]
    newcomers: frozenset[tuple[str, Tier]]


def read_candidates(session: Session, model: str, rooms: list[Room]) -> Candidates:
    """As many as could possibly go now."""
    most = max(sum(room.room_for(tier) for room in rooms) for tier in Tier)
    if not most:
        return Candidates([], {}, frozenset())
    values = {
        "model": model,
        "alive": [room.worker_id for room in rooms],
        "per_account": most,
        "most_accounts": max(most, 16),
        "ring_after_seconds": settings().ring_after_seconds,
    }
    waiting: list[Waiting] = []
    accounts: dict[str, Account] = {}
    newcomers = set()
    for row in session.execute(_CANDIDATES, values):
        account_id, tier = f"acct_{row.account_id.hex}", Tier(row.tier)
        account = accounts.setdefault(account_id, Account({}, row.weight))
        account.virtual_tokens[tier] = row.virtual_tokens
        if not row.is_active:
            newcomers.add((account_id, tier))
        waiting.append(_waiting(row, account_id, tier))
    return Candidates(waiting, accounts, frozenset(newcomers))


def _waiting(row: Any, account_id: str, tier: Tier) -> Waiting:
    return Waiting(
        job_id=f"job_{row.id.hex}",
        account_id=account_id,
        tier=tier,
        order=float(row.order),
        tokens=row.tokens,
        since=float(row.since),
        due=None if row.due is None else float(row.due),
        expires=None if row.expires is None else float(row.expires),
        is_long=row.is_long,
    )


# This one looks at every job that waits; whoever calls it minds what it cost (`workers.dispatcher`).
_DEPTHS = text("""
    SELECT depth.*, accounts.weight FROM (
        SELECT model, tier, account_id, completion_window, count(*) AS jobs,
            sum(reserved_tokens) AS tokens, min(created_at) AS oldest_at
        FROM jobs WHERE status = 'queued' AND model = ANY(:models) AND tier = :tier
        GROUP BY model, tier, account_id, completion_window
    ) depth JOIN accounts ON accounts.id = depth.account_id
""")


@dataclass(slots=True)
class Depth:
    """What waits in a line."""

    accounts: dict[str, AccountMeasure]
    oldest_at: Any = None

    @property
    def jobs(self) -> int:
        return sum(account.jobs for account in self.accounts.values())

    @property
    def tokens(self) -> int:
        return sum(account.tokens for account in self.accounts.values())


def read_depths(session: Session, models: Sequence[str], tier: Tier) -> dict[str, Depth]:
    """By model, where somebody waits."""
    depths: dict[str, Depth] = {}
    for row in session.execute(_DEPTHS, {"models": list(models), "tier": tier.value}):
        depth = depths.setdefault(row.model, Depth({}))
        account_id = f"acct_{row.account_id.hex}"
        so_far = depth.accounts.get(account_id, AccountMeasure(0, 0))
        depth.accounts[account_id] = AccountMeasure(
            so_far.jobs + row.jobs,
            so_far.tokens + int(row.tokens),
            row.weight,
            {**so_far.windows, Window(row.completion_window): int(row.tokens)},
        )
        depth.oldest_at = min(filter(None, (depth.oldest_at, row.oldest_at)))
    return depths
