"""Lines as a dispatcher would have measured them, written by the test."""

from typing import Any

from sqlalchemy.dialects.postgresql import insert

from app import clock
from app.db import transaction
from app.line.lines import forget_lines
from app.line.measures import AccountMeasure, Measure
from app.line.tables import Line, LineState
from config.queues import Tier


def keep_line(
    model: str = "faulty", tier: Tier = Tier.INTERACTIVE, accounts: dict[str, Any] | None = None, **fields: Any
) -> Measure:
    """Store a measure. `accounts` is account id to (jobs, tokens[, weight]); they are all that waits."""
    counted = {name: AccountMeasure(*values) for name, values in (accounts or {}).items()}
    measure = Measure(
        **{
            "model": model,
            "tier": tier,
            "measured_at": clock.now(),
            "slots": 4,
            "tokens_per_second": 100.0,
            "jobs_per_second": 1.0,
            "jobs": sum(account.jobs for account in counted.values()),
            "tokens": sum(account.tokens for account in counted.values()),
            "accounts": counted,
            **fields,
        }
    )
    values = {
        "state": fields.get("state", LineState.OPEN),
        "measured": measure.as_json(),
        "measured_at": measure.measured_at,
    }
    with transaction() as session:
        session.execute(
            insert(Line)
            .values(model=model, tier=tier, **values)
            .on_conflict_do_update(index_elements=["model", "tier"], set_=values)
        )
    forget_lines()
    return measure
