"""How much memory processes take: when nothing happens, and at most while something does. It knows nothing of
what they do.
"""

import threading
import time
from types import TracebackType
from typing import Final, Self

import psutil

IDLE_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 0.05


class Memory:
    """Resident bytes by name, of processes that are idle on entry."""

    def __init__(self, processes: dict[str, psutil.Process]) -> None:
        self._processes = processes
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.idle: dict[str, int] = {}
        self.peak: dict[str, int] = {}

    def __enter__(self) -> Self:
        time.sleep(IDLE_SECONDS)
        self.idle = self._look()
        self.peak = dict(self.idle)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            self.peak = {name: max(self.peak[name], now) for name, now in self._look().items()}

    def _look(self) -> dict[str, int]:
        return {name: int(process.memory_info().rss) for name, process in self._processes.items()}
