"""How fast lines move, from what ended lately. Pure but for what it remembers: a restart forgets, and learns
again within seconds.
"""

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final

from app.line.booking import Booked
from config.queues import Tier

REMEMBERED_SECONDS: Final = 600.0
REMEMBERED_ATTEMPTS: Final = 2_000  # of one line
ENOUGH: Final = 50  # attempts, of which the newest count; fewer: as many as there are
MEASURED_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Rate:
    """Of one line. `tokens_per_slot_second` is in reserved tokens, the unit in which depth is counted: how
    much of the line one busy slot takes in a second.
    """

    jobs_per_second: float = 0.0
    tokens_per_slot_second: float = 0.0
    estimate_error_seconds: float | None = None


class Rates:
    """Give it what was booked; ask it how fast a line moves."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, Tier], deque[tuple[float, Booked]]] = defaultdict(
            lambda: deque(maxlen=REMEMBERED_ATTEMPTS)
        )

    def note(self, booked: Iterable[Booked], now: float) -> None:
        for entry in booked:
            if entry.run_seconds or entry.settled_tokens is not None:
                self._seen[entry.model, entry.tier].append((now, entry))

    def of(self, model: str, tier: Tier, now: float) -> Rate:
        seen = self._seen[model, tier]
        while seen and now - seen[0][0] > REMEMBERED_SECONDS:
            seen.popleft()
        return Rate(_jobs_per_second(seen, now), _tokens_per_slot_second(seen), _estimate_error(seen))


def _jobs_per_second(seen: Iterable[tuple[float, Booked]], now: float) -> float:
    ended = [at for at, entry in seen if entry.settled_tokens is not None and now - at <= MEASURED_SECONDS]
    return len(ended) / MEASURED_SECONDS


def _tokens_per_slot_second(seen: "deque[tuple[float, Booked]]") -> float:
    """What was reserved, over the slot time that it took: jobs that end early take the line along faster."""
    newest = list(seen)[-ENOUGH:]
    ran = [entry for _, entry in newest if entry.run_seconds > 0]
    seconds = sum(entry.run_seconds for entry in ran)
    used = sum(entry.used_tokens for entry in ran)
    ended = [entry for entry in ran if entry.settled_tokens]
    settled = sum(entry.settled_tokens or 0 for entry in ended)
    if not seconds or not settled:
        return 0.0
    reserved_per_used = max(1.0, sum(entry.reserved_tokens for entry in ended) / settled)
    return used / seconds * reserved_per_used


def _estimate_error(seen: "deque[tuple[float, Booked]]") -> float | None:
    """Of jobs that were told to wait, or did."""
    errors = [
        abs(entry.wait_seconds - entry.estimated_wait_seconds)
        for _, entry in list(seen)[-ENOUGH:]
        if entry.settled_tokens is not None
        and entry.wait_seconds is not None
        and entry.estimated_wait_seconds is not None
        and max(entry.wait_seconds, entry.estimated_wait_seconds) > 1.0
    ]
    return median(errors) if errors else None
