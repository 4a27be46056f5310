"""Webhooks: makes messages of what the logs say is due, and sends them. Several may run: each delivery is in
the hands of one, and is another's when that one is lost. Jobs and batches never wait for it.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, TypeVar

import structlog
from sqlalchemy.exc import SQLAlchemyError

from app import (
    clock,
    tables,  # noqa: F401 - a foreign key resolves only where its table is known
)
from app.db import transaction
from app.webhooks import delivering, retention
from app.webhooks.delivering import Claim
from app.webhooks.fanout import fan_out
from app.webhooks.sending import Answer, Outcome, Sender
from config.logging import configure_logging
from config.settings import settings

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 0.3  # how often the logs and the line of deliveries are looked at
GATHER_SECONDS: Final = 0.02  # outcomes that come within it are written together
OUTAGE_SECONDS: Final = 1.0  # between two tries while Postgres is away
STOP_SECONDS: Final = 5.0  # for attempts under way when asked to stop
FANNED_AT_ONCE: Final = 500
PRUNE_SECONDS: Final = 60.0
PRUNED_AT_ONCE: Final = 1000

Result = TypeVar("Result")


class Fanning:
    """Makes messages, and drops those past their retention. `tell` is called after each round that made any."""

    def __init__(self, tell: Callable[[], object]) -> None:
        self._tell = tell
        self._stopping = threading.Event()
        self._pruned_at = 0.0

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                made = self._round()
            except SQLAlchemyError as error:
                log.warning("webhooks.no_database", error=str(error))
                self._stopping.wait(OUTAGE_SECONDS)
                continue
            if made < FANNED_AT_ONCE:
                self._stopping.wait(LOOK_SECONDS)

    def _round(self) -> int:
        with transaction() as session:
            made = fan_out(session, FANNED_AT_ONCE)
        if made:
            self._tell()
        elif clock.monotonic() - self._pruned_at > PRUNE_SECONDS:
            with transaction() as session:
                age = timedelta(days=settings().webhook_retention_days)
                retention.drop_old(session, age, PRUNED_AT_ONCE)
            self._pruned_at = clock.monotonic()
        return made


class Post:
    """Takes deliveries in hand, sends them, and writes what became of them, from one event loop."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._under_way: dict[asyncio.Task[Outcome], Claim] = {}
        self._unwritten: list[tuple[Claim, Outcome]] = []

    def stop(self) -> None:
        self._stopping.set()
        self._woken.set()

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        while not self._stopping.is_set():
            await self._round()
        await self._finish()

    async def _round(self) -> None:
        self._woken.clear()
        self._gather()
        if await _stored(self._write) is None or (claims := await _stored(self._claim)) is None:
            await asyncio.sleep(OUTAGE_SECONDS)
            return
        for claim in claims:
            task = asyncio.create_task(self._sender.send(claim.letter))
            task.add_done_callback(lambda _: self._woken.set())
            self._under_way[task] = claim
        await self._rest()

    async def _rest(self) -> None:
        """Until something has happened, and what happens with it."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._woken.wait()
        except TimeoutError:
            return
        await asyncio.sleep(GATHER_SECONDS)

    def _claim(self) -> list[Claim]:
        with transaction() as session:
            return delivering.claim(session, settings().webhook_concurrency - len(self._under_way))

    def _gather(self) -> None:
        for task in [task for task in self._under_way if task.done()]:
            claim = self._under_way.pop(task)
            self._unwritten.append((claim, _outcome(task, claim)))

    def _write(self) -> int:
        """Returns how many outcomes were written."""
        outcomes = self._unwritten
        if outcomes:
            with transaction() as session:
                delivering.settle(session, outcomes)
            self._unwritten = []
        for claim, outcome in outcomes:
            log.info(
                "webhook.attempted",
                delivery_id=claim.delivery_id,
                status=outcome.answer.status_code,
                error=outcome.answer.error,
                duration_ms=outcome.duration_ms,
            )
        return len(outcomes)

    async def _finish(self) -> None:
        """Let what is under way end, for a while; what does not is given back."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=STOP_SECONDS)
        self._gather()
        await _stored(self._write)
        claims = list(self._under_way.values())
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await _stored(lambda: _release(claims))


def _outcome(task: asyncio.Task[Outcome], claim: Claim) -> Outcome:
    error = task.exception()
    if error is None:
        return task.result()
    # An error of ours: this delivery waits for its next attempt like any other, and holds up none.
    log.error("webhook.broken", delivery_id=claim.delivery_id, exc_info=error)
    return Outcome(Answer(None, "The attempt broke off."), clock.now(), 0)


def _release(claims: Sequence[Claim]) -> int:
    with transaction() as session:
        delivering.release(session, claims)
    return len(claims)


async def _stored(act: Callable[[], Result]) -> Result | None:
    """What `act` returns, run beside the event loop; None while Postgres is away."""
    try:
        return await asyncio.to_thread(act)
    except SQLAlchemyError as error:
        log.warning("webhooks.no_database", error=str(error))
        return None


async def run() -> None:
    """Until asked to stop; what neither of the two expects ends both."""
    loop = asyncio.get_running_loop()
    post = Post(Sender())
    fanning = Fanning(lambda: loop.call_soon_threadsafe(post.wake))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, post.stop)
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(fanning.run))
        group.create_task(_run_post(post, fanning))


async def _run_post(post: Post, fanning: Fanning) -> None:
    try:
        await post.run()
    finally:
        fanning.stop()


def main() -> None:
    configure_logging()
    log.info("webhooks.started")
    asyncio.run(run())


if __name__ == "__main__":
    main()
