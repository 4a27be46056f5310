"""What the gate does while Redis is away: it asks only now and then whether Redis is back, and lets in so many
jobs a minute of each account by this process's own count.
"""

import threading
from collections.abc import Callable
from typing import Final

from cachetools import LRUCache

from app import clock
from app.gate.errors import RateLimited
from app.gate.refusals import jittered

PROBE_SECONDS: Final = 1.0
MAX_ACCOUNTS: Final = 100_000


class Breaker:
    """After a failure one caller in each `PROBE_SECONDS` may try, lest every submission wait in vain."""

    def __init__(self, monotonic: Callable[[], float] = clock.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._next_probe: float | None = None  # None: all is well

    def may_try(self) -> bool:
        with self._lock:
            if self._next_probe is None:
                return True
            if self._monotonic() < self._next_probe:
                return False
            self._next_probe = self._monotonic() + PROBE_SECONDS
            return True

    def failed(self) -> bool:
        """Whether that is news."""
        with self._lock:
            was_well = self._next_probe is None
            self._next_probe = self._monotonic() + PROBE_SECONDS
            return was_well

    def worked(self) -> None:
        self._next_probe = None


class LocalBound:
    """A bucket of requests for each account, full at first. Those not heard of for longest are forgotten."""

    def __init__(
        self, max_accounts: int = MAX_ACCOUNTS, monotonic: Callable[[], float] = clock.monotonic
    ) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._levels: LRUCache[str, tuple[float, float]] = LRUCache(max_accounts)

    def admit(self, account_id: str, per_minute: int) -> None:
        """Count one request; `per_minute` of 0 is no bound. Raises `RateLimited`."""
        if per_minute == 0:
            return
        now = self._monotonic()
        with self._lock:
            level, at = self._levels.get(account_id, (float(per_minute), now))
            level = min(per_minute, level + max(0.0, now - at) * per_minute / 60)
            self._levels[account_id] = (level - 1 if level >= 1 else level, now)
        if level < 1:
            limit = f"until the rates can be checked again, {per_minute} requests a minute are accepted"
            raise RateLimited(f"Rate limit reached: {limit}.", jittered((1 - level) * 60 / per_minute))
