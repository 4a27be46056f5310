"""How many deliveries at a time an endpoint gets, and when it is left alone: one whose last few failed is tried
by a single delivery now and then, until one succeeds. Pure.
"""

from typing import Final

TRIPPED_AFTER: Final = 5  # failures in a row
PAUSES_SECONDS: Final = (5, 10, 20, 40, 80, 160, 300)  # after each failure from then on


def width(failures: int, usual: int) -> int:
    """How many attempts may be under way."""
    return 1 if failures >= TRIPPED_AFTER else usual


def pause_seconds(failures: int, retry_after_seconds: float | None) -> float:
    """How long nothing is sent after a failure, `failures` with it. Who says when to come back is heard, up to
    the longest pause: for the delivery itself it holds in full.
    """
    beyond = failures - TRIPPED_AFTER
    usual = 0 if beyond < 0 else PAUSES_SECONDS[min(beyond, len(PAUSES_SECONDS) - 1)]
    return max(usual, min(retry_after_seconds or 0.0, PAUSES_SECONDS[-1]))
