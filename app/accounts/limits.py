"""What an account and its key may do, resolved: their own settings where they have some, else those of the
installation. Pure; it knows nothing of who enforces the limits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.accounts.tables import Account, ApiKey
from config.queues import Tier
from config.settings import settings


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a caller in one tier; 0 is no limit. The key's hold besides the account's."""

    weight: float = 1.0
    requests_per_minute: int = 0
    key_requests_per_minute: int = 0
    tokens_per_minute: int = 0
    key_tokens_per_minute: int = 0
    max_waiting_jobs: int = 0
    max_waiting_tokens: int = 0
    accepts_late_windows: bool = False


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is asking, and what they may."""

    account_id: str
    key_id: str
    limits: Mapping[Tier, Limits] = field(default_factory=dict)


def caller_with(account: Account, key: ApiKey) -> Caller:
    return Caller(account.id, key.id, {tier: limits_of(account, key, tier) for tier in Tier})


def limits_of(account: Account, key: ApiKey | None, tier: Tier) -> Limits:
    usual = settings()
    tokens = {
        Tier.INTERACTIVE: _own(account.tokens_per_minute, usual.tokens_per_minute),
        Tier.BATCH: _own(account.batch_tokens_per_minute, usual.batch_tokens_per_minute),
    }
    return Limits(
        weight=account.weight,
        requests_per_minute=_own(account.requests_per_minute, usual.requests_per_minute),
        key_requests_per_minute=_own(key.requests_per_minute, 0) if key else 0,
        tokens_per_minute=tokens[tier],
        key_tokens_per_minute=_own(key.tokens_per_minute, 0) if key else 0,
        max_waiting_jobs=_own(account.max_waiting_jobs, usual.max_waiting_jobs),
        max_waiting_tokens=_own(account.max_waiting_tokens, usual.max_waiting_tokens),
        accepts_late_windows=account.accepts_late_windows,
    )


def _own(own: int | None, usual: int) -> int:
    return usual if own is None else own
