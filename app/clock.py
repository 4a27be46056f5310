"""The only source of time in `app`: wall clock in UTC for what is stored, monotonic for what is measured."""

import time
from datetime import UTC, datetime

monotonic = time.monotonic


def now() -> datetime:
    return datetime.now(UTC)


def sleep(seconds: float) -> None:
    time.sleep(seconds)
