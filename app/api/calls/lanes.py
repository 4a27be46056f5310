"""The turns of one conversation: those of a lane one after the other, those of different lanes at the same
time, all within bounds. It knows neither HTTP nor what a turn does.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MAX_LANES: Final = 16  # with something to do, at the same time
MAX_WAITING: Final = 64  # turns of all lanes
MAX_WAITING_BYTES: Final = 8_000_000

Lane = str | None


class LanesFull(Exception):
    """The message says which bound, and what to do."""


@dataclass(frozen=True, slots=True)
class Turn:
    """`run` must not raise; `size` is what it holds while it waits, in bytes."""

    run: Callable[[], None]
    size: int


class Lanes:
    def __init__(self) -> None:
        self._waiting: dict[Lane, deque[Turn]] = {}
        self._lock = threading.Lock()
        self.is_over = False

    @property
    def active(self) -> list[Lane]:
        """Those with a turn that runs."""
        with self._lock:
            return list(self._waiting)

    def add(self, lane: Lane, turn: Turn) -> None:
        """Run the turn when those before it in its lane have ended. Raises `LanesFull`."""
        with self._lock:
            if lane in self._waiting:
                self._require_room(turn)
                self._waiting[lane].append(turn)
                return
            if len(self._waiting) >= MAX_LANES:
                raise LanesFull(
                    f"A connection runs at most {MAX_LANES} responses at the same time; wait for one to end, or"
                    " open another connection."
                )
            self._waiting[lane] = deque()
        threading.Thread(target=self._run, args=(lane, turn), daemon=True).start()

    def end(self) -> None:
        """Begin no other turn. Those that run see `is_over`."""
        with self._lock:
            self.is_over = True
            for waiting in self._waiting.values():
                waiting.clear()

    def _require_room(self, turn: Turn) -> None:
        turns = [turn, *(one for waiting in self._waiting.values() for one in waiting)]
        if len(turns) > MAX_WAITING or sum(one.size for one in turns) > MAX_WAITING_BYTES:
            raise LanesFull(
                f"At most {MAX_WAITING} requests of {MAX_WAITING_BYTES} bytes in all may wait on a connection"
                " for the end of an earlier one; wait for an end."
            )

    def _run(self, lane: Lane, turn: Turn | None) -> None:
        while turn is not None:
            turn.run()
            turn = self._next(lane)

    def _next(self, lane: Lane) -> Turn | None:
        with self._lock:
            if self._waiting[lane]:
                return self._waiting[lane].popleft()
            del self._waiting[lane]
            return None
