"""Wait for a condition with a deadline, instead of sleeping and hoping."""

import time
from collections.abc import Callable
from typing import Any


def eventually(condition: Callable[[], Any], seconds: float = 10.0, what: str = "") -> Any:
    """The first truthy value of `condition`. Fails the test after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s: {what or condition}")
