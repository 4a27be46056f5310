"""How far a batch is, how fast it goes, when it will end: told in its log, at most every so often, and only on
a change. Speed is that of the last half minute as this process saw it.
"""

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from app.batches.counting import Counts
from config.settings import settings

SPEED_SECONDS: Final = 30.0
# A batch that runs for a day is told of every minute and a half in the end: its log stays short.
AGE_SHARE: Final = 0.001


@dataclass(frozen=True, slots=True)
class Seen:
    """`at` is a monotonic time; `tokens` are of the output."""

    at: float
    lines: int
    tokens: int


class Pace:
    """What was seen of one batch lately."""

    def __init__(self) -> None:
        self._seen: deque[Seen] = deque()

    def note(self, at: float, counts: Counts) -> None:
        self._seen.append(Seen(at, counts.ended, counts.output_tokens))
        while len(self._seen) > 2 and self._seen[1].at <= at - SPEED_SECONDS:
            self._seen.popleft()

    @property
    def lines_per_second(self) -> float:
        return self._per_second(self._seen[-1].lines - self._seen[0].lines)

    @property
    def tokens_per_second(self) -> float:
        return self._per_second(self._seen[-1].tokens - self._seen[0].tokens)

    def _per_second(self, made: int) -> float:
        seconds = self._seen[-1].at - self._seen[0].at
        return made / seconds if seconds > 0 else 0.0


def pause_seconds(age_seconds: float) -> float:
    """Between two progress events of a batch that has run for so long."""
    return max(settings().batch_progress_seconds, age_seconds * AGE_SHARE)


def standing(counts: Counts) -> dict[str, Any]:
    """Counts and usage in OpenAI's shapes."""
    return {
        "request_counts": {"total": counts.total, "completed": counts.completed, "failed": counts.failed},
        "usage": {
            "input_tokens": counts.input_tokens,
            "input_tokens_details": {"cached_tokens": counts.cached_tokens},
            "output_tokens": counts.output_tokens,
            "total_tokens": counts.input_tokens + counts.output_tokens,
        },
    }


def told(counts: Counts, pace: Pace, now: datetime) -> dict[str, Any]:
    """The data of a progress event; times are Unix seconds, null where nothing foretells them."""
    per_second = pace.lines_per_second
    left = timedelta(seconds=(counts.total - counts.ended) / per_second) if per_second > 0 else None
    return {
        **standing(counts),
        "running": counts.running,
        "lines_per_second": round(per_second, 3),
        "tokens_per_second": round(pace.tokens_per_second, 3),
        "estimated_finish_at": None if left is None else int((now + left).timestamp()),
    }
