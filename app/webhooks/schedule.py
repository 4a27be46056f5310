"""When a delivery that failed is tried again. Pure."""

from collections.abc import Callable
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

# Before each attempt, in seconds, as Standard Webhooks suggests: 75 hours in all.
DELAYS_SECONDS: Final = (0, 5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
LEAST_SECONDS: Final = 1.0  # before a second attempt, whatever was drawn
LONGEST_SECONDS: Final = 86_400.0  # that a receiver may ask for


def next_delay_seconds(
    attempts: int, retry_after_seconds: float | None, draw: Callable[[float, float], float]
) -> float | None:
    """From a failure to the next attempt, after so many; None where none is left. `draw` picks a number between
    two (full jitter): a receiver that comes back is not to meet all at once.
    """
    if attempts >= len(DELAYS_SECONDS):
        return None
    drawn = max(LEAST_SECONDS, draw(0, DELAYS_SECONDS[attempts]))
    return max(drawn, min(retry_after_seconds or 0.0, LONGEST_SECONDS))


def parse_retry_after(header: str | None, now: datetime) -> float | None:
    """Seconds from now, of a header that gives seconds or a date; None for anything else."""
    value = (header or "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:12])
    try:
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds())
    except (ValueError, TypeError):
        return None
