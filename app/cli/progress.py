"""How a watched job stands, as one line: what it waits for, how long it took, how fast tokens come. Pure but
for the clock that it is given.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from app.jobs.states import Status
from app.line.wording import standing

WINDOW_SECONDS: Final = 5.0


@dataclass
class Progress:
    """`began_at` is when the job was submitted, on the clock `now` (monotonic seconds). `tokens` counts the
    live pieces of output, which is what tokens come in; the exact number is in the usage at the end.
    """

    now: Callable[[], float]
    began_at: float
    status: str = Status.QUEUED
    waiting: str = ""
    position: int | None = None  # in the line
    starts_at: float | None = None  # as estimated, on the same clock
    is_connected: bool = True
    tokens: int = 0
    ttft_seconds: float | None = None
    ended_at: float | None = None
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def note_output(self, pieces: int, *, is_replay: bool) -> None:
        """Output came; the first says how long it took, unless it is a replay of what came long ago."""
        if self.tokens == 0 and not is_replay:
            self.ttft_seconds = self.now() - self.began_at
        self.tokens += pieces
        self._recent.append((self.now(), self.tokens))
        while self._recent[-1][0] - self._recent[0][0] > WINDOW_SECONDS:
            self._recent.popleft()

    def note_rewind(self, kept_share: float) -> None:
        self.tokens = round(self.tokens * kept_share)
        self._recent.clear()

    def note_place(self, position: int, wait_seconds: float | None) -> None:
        """The job moved in the line."""
        self.position = position
        self.starts_at = None if wait_seconds is None else self.now() + wait_seconds

    def note_status(self, status: str) -> None:
        self.status = status
        self.waiting, self.position, self.starts_at = "", None, None

    @property
    def elapsed_seconds(self) -> float:
        return (self.ended_at or self.now()) - self.began_at

    @property
    def tokens_per_second(self) -> float | None:
        """Over the last seconds."""
        if len(self._recent) < 2:
            return None
        (since, before), (until, after) = self._recent[0], self._recent[-1]
        return (after - before) / (until - since) if until > since else None

    def line(self) -> str:
        parts = [self.status if self.is_connected else f"{self.status}, connection lost, trying again"]
        if self.status == Status.QUEUED and (reason := self._reason()):
            parts.append(reason)
        parts.append(f"{self.elapsed_seconds:.1f} s")
        if self.tokens:
            parts.append(f"{self.tokens} tokens")
        if self.tokens_per_second is not None:
            parts.append(f"{self.tokens_per_second:.1f} tokens/s")
        return " · ".join([*parts, *self._ttft()])

    def _reason(self) -> str:
        """Why it waits, where it is not for its turn; else its turn."""
        if self.waiting or self.position is None:
            return self.waiting and f"waiting: {self.waiting}"
        return standing(self.position, None if self.starts_at is None else self.starts_at - self.now())

    def summary(self, ending: dict[str, Any]) -> str:
        """The last line. `ending` is the terminal event: usage, error, incomplete_details."""
        reason = (ending.get("error") or {}).get("message") or (ending.get("incomplete_details") or {}).get(
            "reason"
        )
        usage = ending.get("usage") or {}
        counts = f"{usage.get('input_tokens', 0)} tokens in, {usage.get('output_tokens', 0)} out"
        parts = [f"{self.status}: {reason}" if reason else self.status, counts, f"{self.elapsed_seconds:.1f} s"]
        if rate := self._whole_rate(usage.get("output_tokens", 0)):
            parts.append(f"{rate:.1f} tokens/s")
        return " · ".join([*parts, *self._ttft()])

    def _whole_rate(self, tokens: int) -> float | None:
        """Tokens after the first, over the time that they took."""
        seconds = self.elapsed_seconds - (self.ttft_seconds or 0)
        return (tokens - 1) / seconds if self.ttft_seconds is not None and tokens > 1 and seconds > 0 else None

    def _ttft(self) -> list[str]:
        return [] if self.ttft_seconds is None else [f"first token {self.ttft_seconds:.2f} s"]
