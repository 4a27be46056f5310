"""How a watched batch stands: a bar with counts, and a line with rates, what is left of its time, and cost.
Pure but for the clock that it is given.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from app.batches.states import PROGRESS, TERMINAL_BATCHES, BatchStatus
from app.cli.batch_words import Batch, ended_lines, money
from app.line.wording import in_words

BAR_COLUMNS: Final = 36
_BEFORE_ITS_LINES: Final = frozenset({BatchStatus.VALIDATING, BatchStatus.FAILED})
_STEPS: Final = (
    {BatchStatus.VALIDATING},
    {BatchStatus.IN_PROGRESS},
    {BatchStatus.CANCELLING, BatchStatus.FINALIZING},
    TERMINAL_BATCHES,
)


@dataclass
class BatchProgress:
    """`batch` is as the API said it last. `began_at` and `finishes_at` are on the clock `now`, in monotonic
    seconds.
    """

    now: Callable[[], float]
    began_at: float
    batch: Batch
    lines_per_second: float | None = None
    tokens_per_second: float | None = None
    finishes_at: float | None = None  # as estimated
    is_connected: bool = True

    def note(self, event: dict[str, Any]) -> None:
        """An event of the batch's log, unless the batch has left it behind."""
        if self._is_old(event):
            return
        counts = event.get("request_counts") or {}
        self.batch["request_counts"] = {**self.batch["request_counts"], **counts}
        self.batch["status"] = event.get("status", self.batch["status"])
        self.batch["running"] = event.get("running", self.batch["running"])
        if event["type"] == PROGRESS:
            self.lines_per_second = event.get("lines_per_second")
            self.tokens_per_second = event.get("tokens_per_second")
            left = _seconds_left(event)
            self.finishes_at = None if left is None else self.now() + left
        else:
            self.lines_per_second = self.tokens_per_second = self.finishes_at = None

    def _is_old(self, event: dict[str, Any]) -> bool:
        """A log is followed from its beginning, and the batch was asked for meanwhile."""
        if event["type"] == PROGRESS:
            return ended_lines(event) < ended_lines(self.batch)
        return _step(event["status"]) < _step(self.batch["status"])

    @property
    def percent(self) -> int:
        """Of its lines that have ended; 100 only once all have."""
        total = self.batch["request_counts"]["total"]
        return 100 * ended_lines(self.batch) // total if total else 0

    def __rich__(self) -> Group:
        """Two rows."""
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            Text(self._status()),
            ProgressBar(total=100, completed=self.percent, width=BAR_COLUMNS, pulse=not self._has_lines),
            Text(self._count(), no_wrap=True),
        )
        return Group(bar, Text(self._rest(), style="dim", no_wrap=True, overflow="ellipsis"))

    def line(self) -> str:
        """The same in one."""
        return " · ".join(filter(None, (self._status(), self._count(), self._rest())))

    @property
    def _has_lines(self) -> bool:
        return self.batch["status"] not in _BEFORE_ITS_LINES

    def _status(self) -> str:
        status: str = self.batch["status"]
        return status if self.is_connected else f"{status}, connection lost, trying again"

    def _count(self) -> str:
        if not self._has_lines:
            return ""
        total = self.batch["request_counts"]["total"]
        return f"{ended_lines(self.batch):,}/{total:,} ({self.percent}%)"

    def _rest(self) -> str:
        parts = [f"{self.batch['request_counts']['failed']:,} failed"] if self._has_lines else []
        if self.batch["running"]:
            parts.append(f"{self.batch['running']:,} running")
        if self.lines_per_second:
            parts.append(f"{self.lines_per_second:,.1f} lines/s")
        if self.tokens_per_second:
            parts.append(f"{self.tokens_per_second:,.0f} tokens/s")
        parts.append(f"{self.now() - self.began_at:.0f} s")
        if self.finishes_at is not None:
            parts.append(f"{in_words(max(0.0, self.finishes_at - self.now()))} left")
        if self._has_lines and (cost := money(self.batch, self.batch["cost"])):
            parts.append(cost)
        return " · ".join(parts)


def _step(status: str) -> int:
    return next(step for step, statuses in enumerate(_STEPS) if status in statuses)


def _seconds_left(event: dict[str, Any]) -> float | None:
    """By the server's clock, which made the estimate."""
    finish_at = event.get("estimated_finish_at")
    return finish_at and max(0.0, finish_at - datetime.fromisoformat(event["at"]).timestamp())
