"""What tests say to the gate, valid by default."""

from datetime import UTC, datetime
from typing import Any

from app.accounts.limits import Limits
from app.gate.admission import Entry
from app.ids import new_id
from app.line.measures import AccountMeasure, Measure
from config.queues import Tier, Window

MODEL = "faulty"


def limits(**given: Any) -> Limits:
    return Limits(**given)


def entry(**given: Any) -> Entry:
    """A job of 100 tokens; what is no field of an entry is a limit."""
    fields = {name: given.pop(name) for name in list(given) if name in Entry.__slots__}
    usual = {
        "job_id": new_id("job"),
        "account_id": "acct_alice",
        "key_id": "key_alice",
        "model": MODEL,
        "tier": Tier.INTERACTIVE,
        "window": Window.SOONEST,
        "tokens": 100,
    }
    return Entry(**{**usual, "limits": limits(**given), **fields})


def batch(**given: Any) -> Entry:
    return entry(**{"tier": Tier.BATCH, "window": Window.ONE_DAY, **given})


def measure(tier: Tier = Tier.INTERACTIVE, accounts: dict[str, Any] | None = None, **given: Any) -> Measure:
    """`accounts` maps an account to the jobs and tokens that it has waiting."""
    counted = {name: AccountMeasure(*values) for name, values in (accounts or {}).items()}
    return Measure(MODEL, tier, datetime.now(UTC), accounts=counted, **given)
