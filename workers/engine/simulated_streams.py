"""One running call of the simulated engine, between the engine's steps and who reads it. It knows no text."""

import asyncio
from collections.abc import Callable

from app.tokens.simulated import EOS
from workers.engine import FinishReason


class Stream:
    """One running call. The engine's step appends to `fresh` and wakes the reader, which takes all of it: a
    late reader gets fewer, longer deltas.
    """

    __slots__ = ("cues", "error", "finish", "fresh", "left", "made", "prefill", "priority", "ready_at",
                 "stride", "waiter", "write")  # fmt: skip

    def __init__(
        self,
        write: Callable[[], int],
        cues: dict[str, str],
        *,
        left: int,
        stride: int,
        prefill: int,
        priority: int,
    ) -> None:
        self.priority = priority
        self.write = write
        self.cues = cues
        self.left = left
        self.stride = stride
        self.prefill = prefill  # prompt tokens that no cache knows
        self.ready_at = 0.0
        self.made = 0
        self.fresh: list[int] = []
        self.finish: FinishReason | None = None
        self.error: Exception | None = None
        self.waiter: asyncio.Future[None] | None = None

    def step(self) -> None:
        token = self.write()
        self.fresh.append(token)
        self.made += 1
        if token == EOS:
            self.finish = FinishReason.STOP
        elif self.made == self.left:
            self.finish = FinishReason.LENGTH
        self.wake()

    async def more(self) -> list[int]:
        while not self.fresh:
            if self.error is not None:
                raise self.error
            self.waiter = asyncio.get_running_loop().create_future()
            await self.waiter
        return self.fresh

    def fail(self, error: Exception) -> None:
        self.error = error
        self.wake()

    def wake(self) -> None:
        waiter = self.waiter
        if waiter is not None:
            self.waiter = None
            if not waiter.done():
                waiter.set_result(None)
