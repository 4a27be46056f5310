"""Booking the ledger, once a row: what an attempt really used corrects its account's share of the line, and
what an ended job reserved is settled at the gate. Only the first is a promise; the gate forgets, and expires.
"""

from collections import defaultdict
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.line.placing import Charge, charge
from config.queues import Tier

_BOOK = text("""
    UPDATE usage SET is_booked = true,
        booked_tokens = usage.input_tokens + usage.output_tokens - usage.charged_tokens
    FROM (
        SELECT job_id, attempt, booked_tokens FROM usage WHERE NOT is_booked
        ORDER BY created_at LIMIT :limit FOR UPDATE SKIP LOCKED
    ) due
    WHERE usage.job_id = due.job_id AND usage.attempt = due.attempt
    RETURNING usage.*, usage.booked_tokens - due.booked_tokens AS tokens_to_charge
""")


@dataclass(frozen=True, slots=True)
class Booked:
    """A row of the ledger that was booked just now. `settled_tokens` is None unless the job has ended."""

    job_id: str
    account_id: str
    key_id: str | None
    model: str
    tier: Tier
    used_tokens: int
    run_seconds: float
    reserved_tokens: int
    settled_tokens: int | None
    wait_seconds: float | None
    estimated_wait_seconds: float | None


def book(session: Session, limit: int) -> list[Booked]:
    """Book what is not booked yet."""
    charges: dict[Charge, float] = defaultdict(float)
    booked = []
    for row in session.execute(_BOOK, {"limit": limit}):
        entry = Booked(
            job_id=f"job_{row.job_id.hex}",
            account_id=f"acct_{row.account_id.hex}",
            key_id=f"key_{row.key_id.hex}" if row.key_id else None,
            model=row.model,
            tier=Tier(row.tier),
            used_tokens=row.input_tokens + row.output_tokens,
            run_seconds=row.run_seconds,
            reserved_tokens=row.reserved_tokens,
            settled_tokens=row.settled_tokens,
            wait_seconds=row.wait_seconds,
            estimated_wait_seconds=row.estimated_wait_seconds,
        )
        booked.append(entry)
        charges[entry.account_id, entry.model, entry.tier] += row.tokens_to_charge
    charge(session, {who: tokens for who, tokens in charges.items() if tokens})
    return booked
