"""Several followers read as one, each by a thread of its own: a greenlet in a gevent server."""

import queue
import threading
from collections.abc import Iterator
from typing import Final

from app.streams.frames import Frame

# What was read and not yet taken.
MAX_BATCHES: Final = 64

Batch = tuple[int, list[Frame]]
_Came = tuple[int, list[Frame] | Exception | None]


def merged(followers: list[Iterator[list[Frame]]], tick_seconds: float) -> Iterator[Batch]:
    """What comes from any of them, with its index, until all have ended; an empty list when nothing did for
    `tick_seconds`. Raises what the first to fail raised.
    """
    came: queue.Queue[_Came] = queue.Queue(MAX_BATCHES)
    has_left = threading.Event()
    for index, follower in enumerate(followers):
        reader = _Reader(came, has_left, tick_seconds)
        threading.Thread(target=reader.read, args=(index, follower), daemon=True).start()
    try:
        yield from _taken(came, len(followers), tick_seconds)
    finally:
        has_left.set()


class _Reader:
    def __init__(self, came: "queue.Queue[_Came]", has_left: threading.Event, tick_seconds: float) -> None:
        self._came = came
        self._has_left = has_left
        self._tick_seconds = tick_seconds

    def read(self, index: int, follower: Iterator[list[Frame]]) -> None:
        failed: Exception | None = None
        try:
            for batch in follower:
                if self._has_left.is_set() or (batch and not self._put((index, batch))):
                    return
        except Exception as error:  # noqa: BLE001 - raised again where batches are taken
            failed = error
        self._put((index, failed))

    def _put(self, one: _Came) -> bool:
        """Whether there was room before the taker left."""
        while not self._has_left.is_set():
            try:
                self._came.put(one, timeout=self._tick_seconds)
            except queue.Full:
                continue
            return True
        return False


def _taken(came: "queue.Queue[_Came]", running: int, tick_seconds: float) -> Iterator[Batch]:
    while running:
        try:
            index, batch = came.get(timeout=tick_seconds)
        except queue.Empty:
            yield 0, []
            continue
        if isinstance(batch, Exception):
            raise batch
        if batch is None:
            running -= 1
        else:
            yield index, batch
