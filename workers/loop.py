"""The one asyncio loop of a worker process, on a thread of its own. The engine lives on it; whatever else runs
there delays every job's tokens.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class EngineLoop:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine-loop", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for it, from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
