"""What the dispatcher writes: placements, and each account's share of the line. A placement is a promise that
nobody has to keep: the claim decides.
"""

from collections.abc import Iterable, Sequence

from sqlalchemy import ARRAY, BigInteger, Boolean, Float, Text, bindparam, text
from sqlalchemy.dialects.postgresql import UUID
from sqlalchemy.orm import Session

from app.ids import to_uuid
from app.line.plan import Account, Placement
from config.queues import Tier

_PLACE = text("""
    UPDATE jobs SET placed_on = placed.worker_id, rung_at = now(),
        charged_tokens = charged_tokens + placed.tokens, is_preemptible = is_preemptible AND NOT placed.is_aged
    FROM unnest(:job_ids, :workers, :tokens, :aged) AS placed(job_id, worker_id, tokens, is_aged)
    WHERE jobs.id = placed.job_id AND status = 'queued'
    RETURNING jobs.id
""").bindparams(
    bindparam("job_ids", type_=ARRAY(UUID)),
    bindparam("workers", type_=ARRAY(Text)),
    bindparam("tokens", type_=ARRAY(BigInteger)),
    bindparam("aged", type_=ARRAY(Boolean)),
)


def place(session: Session, placements: Sequence[Placement]) -> list[Placement]:
    """Note where each job will be rung for. Returns those that still waited."""
    # By id, as every other statement that locks several jobs.
    ordered = sorted(placements, key=lambda placement: placement.job.job_id)
    rows = session.execute(
        _PLACE,
        {
            "job_ids": [to_uuid("job", placement.job.job_id) for placement in ordered],
            "workers": [placement.worker_id for placement in ordered],
            "tokens": [placement.job.tokens for placement in ordered],
            "aged": [placement.is_aged for placement in ordered],
        },
    )
    found = {f"job_{row.id.hex}" for row in rows}
    return [placement for placement in placements if placement.job.job_id in found]


_UNPLACE = text("""
    UPDATE jobs SET placed_on = NULL, rung_at = NULL
    WHERE id = :job_id AND status = 'queued' AND placed_on = :worker_id
""").bindparams(bindparam("job_id", type_=UUID))


def decline(session: Session, job_id: str, worker_id: str) -> None:
    """A worker that was rung for a job has no room for it: it waits again."""
    session.execute(_UNPLACE, {"job_id": to_uuid("job", job_id), "worker_id": worker_id})


# An account that comes back is lifted to the least of those that stayed, else to where the line was left: what
# it did not use while it was away is nobody's debt.
_WELCOME = text("""
    INSERT INTO shares (account_id, model, tier, virtual_tokens, is_active)
    SELECT came.account_id, :model, came.tier, coalesce(floor.least, lines.virtual_clock, 0), true
    FROM unnest(:account_ids, :tiers) AS came(account_id, tier)
    LEFT JOIN lines ON lines.model = :model AND lines.tier = came.tier
    CROSS JOIN LATERAL (
        SELECT min(virtual_tokens) AS least FROM shares stayed
        WHERE stayed.model = :model AND stayed.tier = came.tier AND stayed.is_active
    ) floor
    ON CONFLICT (account_id, model, tier) DO UPDATE SET is_active = true, changed_at = now(),
        virtual_tokens = greatest(shares.virtual_tokens, EXCLUDED.virtual_tokens)
    RETURNING account_id, tier, virtual_tokens
""").bindparams(bindparam("account_ids", type_=ARRAY(UUID)), bindparam("tiers", type_=ARRAY(Text)))


def welcome(
    session: Session, model: str, newcomers: Iterable[tuple[str, Tier]], accounts: dict[str, Account]
) -> None:
    """Let accounts join a line, and note in `accounts` where they stand."""
    came = sorted(newcomers)
    if not came:
        return
    rows = session.execute(
        _WELCOME,
        {
            "model": model,
            "account_ids": [to_uuid("acct", account_id) for account_id, _ in came],
            "tiers": [tier.value for _, tier in came],
        },
    )
    for row in rows:
        accounts[f"acct_{row.account_id.hex}"].virtual_tokens[Tier(row.tier)] = row.virtual_tokens


_CHARGE = text("""
    INSERT INTO shares (account_id, model, tier, virtual_tokens)
    SELECT charged.account_id, charged.model, charged.tier, charged.tokens / accounts.weight
    FROM unnest(:account_ids, :models, :tiers, :tokens) AS charged(account_id, model, tier, tokens)
    JOIN accounts ON accounts.id = charged.account_id
    ON CONFLICT (account_id, model, tier)
        DO UPDATE SET virtual_tokens = shares.virtual_tokens + EXCLUDED.virtual_tokens, changed_at = now()
""").bindparams(
    bindparam("account_ids", type_=ARRAY(UUID)),
    bindparam("models", type_=ARRAY(Text)),
    bindparam("tiers", type_=ARRAY(Text)),
    bindparam("tokens", type_=ARRAY(Float)),
)

Charge = tuple[str, str, Tier]  # account id, model, tier


def charge(session: Session, tokens: dict[Charge, float]) -> None:
    """Add to what accounts were given in a line; negative tokens give back."""
    charges = sorted(tokens.items())
    if charges:
        session.execute(
            _CHARGE,
            {
                "account_ids": [to_uuid("acct", account_id) for (account_id, _, _), _ in charges],
                "models": [model for (_, model, _), _ in charges],
                "tiers": [tier.value for (_, _, tier), _ in charges],
                "tokens": [float(count) for _, count in charges],
            },
        )


_LEAVE = text("""
    UPDATE shares SET is_active = false, changed_at = now()
    WHERE is_active AND tier = :tier AND NOT EXISTS (
        SELECT FROM jobs WHERE status = 'queued' AND jobs.account_id = shares.account_id
            AND jobs.model = shares.model AND jobs.tier = shares.tier AND jobs.is_long IN (true, false)
    ) AND NOT EXISTS (
        SELECT FROM jobs WHERE status = 'in_progress' AND jobs.account_id = shares.account_id
            AND jobs.model = shares.model AND jobs.tier = shares.tier
    )
""")
_TICK = text("""
    UPDATE lines SET virtual_clock = floor.least FROM (
        SELECT model, tier, min(virtual_tokens) AS least FROM shares WHERE is_active GROUP BY model, tier
    ) floor
    WHERE lines.model = floor.model AND lines.tier = floor.tier AND lines.virtual_clock < floor.least
""")


def let_go(session: Session, tier: Tier) -> None:
    """Accounts that have nothing in a line of this tier any more leave it; each line remembers where it is."""
    session.execute(_TICK)
    session.execute(_LEAVE, {"tier": tier.value})
