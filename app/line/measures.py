"""What the dispatcher measures of a line, as values: kept in Postgres for whoever asks (`lines.measured`), in
Redis for the gate. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from app.line.tables import LineState
from config.queues import Tier, Window


@dataclass(frozen=True, slots=True)
class AccountMeasure:
    """What one account has waiting in a line; its tokens also by completion window."""

    jobs: int
    tokens: int
    weight: float = 1.0
    windows: Mapping[Window, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measure:
    """One line at a moment. Tokens are reserved ones: the prompt and the most that may be made.
    `jobs_per_second` ended lately; `tokens_per_second` is how fast the line gets shorter while all its slots
    are busy, from the slot time of jobs that ended lately. Both are 0 where none did. `free_slots` is how many
    more jobs of this tier could start now, for interactive ones with the batch jobs that would yield.
    `estimate_error_seconds` is the median of how far the start foretold at submission was from the real one, of
    jobs that waited lately.
    """

    model: str
    tier: Tier
    measured_at: datetime
    state: LineState = LineState.OPEN
    jobs: int = 0
    tokens: int = 0
    oldest_at: datetime | None = None  # submission of the one that waits longest
    running: int = 0
    slots: int = 0  # of all workers, shared with the other tier
    free_slots: int = 0
    jobs_per_second: float = 0.0
    tokens_per_second: float = 0.0
    estimate_error_seconds: float | None = None
    accounts: dict[str, AccountMeasure] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """For `lines.measured`; `from_json` reads it back."""
        return {
            "jobs": self.jobs,
            "tokens": self.tokens,
            "oldest_at": self.oldest_at.isoformat() if self.oldest_at else None,
            "running": self.running,
            "slots": self.slots,
            "free_slots": self.free_slots,
            "jobs_per_second": self.jobs_per_second,
            "tokens_per_second": self.tokens_per_second,
            "estimate_error_seconds": self.estimate_error_seconds,
            "accounts": {name: [a.jobs, a.tokens, a.weight] for name, a in self.accounts.items()},
        }


def from_json(
    model: str, tier: Tier, state: LineState, measured_at: datetime, stored: dict[str, Any]
) -> Measure:
    """A stored measure; `stored` is empty where none was made yet."""
    fields = dict(stored)
    oldest_at = fields.pop("oldest_at", None)
    accounts = fields.pop("accounts", {})
    return Measure(
        model=model,
        tier=tier,
        state=state,
        measured_at=measured_at,
        oldest_at=datetime.fromisoformat(oldest_at) if oldest_at else None,
        accounts={name: AccountMeasure(*values) for name, values in accounts.items()},
        **fields,
    )
