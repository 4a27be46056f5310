"""`followers`: 3,000 WebSockets on one web process. What each costs in memory, and how much later than the
worker's publishing a frame arrives, while every job says something about once a second. Every follower checks
that no frame is lost or repeated.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, Final, Self

import aiohttp
import orjson
import psutil

from app.redis import client as redis
from app.streams.tail import channel
from bench.clients import Client, Seen, StreamBroken, connected
from bench.harness import BenchFailed, Platform, platform
from bench.report import Aim, Figure, Report, percentile

MODEL: Final = "talk"
CATALOGUE: Final = f"""
[models.{MODEL}]
engine = "simulated"
context_tokens = 4096
slots = 64
default_output_tokens = 64

[models.{MODEL}.engine_options]
cues = true
step_seconds = 0.02
"""
AIM: Final = Aim("value", "<=", 40)
JOBS: Final = 60
FULL: Final = (3000, 30)  # followers, and tokens of each job
QUICK: Final = (600, 10)
CLIENTS: Final = 2  # processes
OPENING: Final = 20  # handshakes at once, in one process
PATIENCE_SECONDS: Final = 180
BUSY: Final = 503  # "try again", as the server says when too many come at once
BUSY_SECONDS: Final = 0.5

# Job, sequence number, `time.monotonic`, which is the same clock in every process of a machine.
Receipt = tuple[str, int, float]


def measure(report: Report, *, quick: bool) -> None:
    followers, tokens = QUICK if quick else FULL
    with platform(CATALOGUE) as started:
        web = started.start_web()
        started.start_background()
        started.start_dispatcher()
        jobs = started.submit([_body(number, tokens) for number in range(JOBS)])
        asyncio.run(_touch(started, jobs[0]))
        empty = web.memory_info().rss
        wanted = [jobs[number % JOBS] for number in range(followers)]
        crowd = _Crowd(started, [wanted[part::CLIENTS] for part in range(CLIENTS)])
        full = web.memory_info().rss
        with _Control() as control:
            started.start_worker(MODEL)
            receipts, busiest = crowd.ended(web)
        lags = [1000 * (at - control.heard[job_id, seq]) for job_id, seq, at in receipts]
        report.add(
            Figure("memory a follower", (full - empty) / followers / 1024, "KiB", aim=AIM),
            Figure("memory a follower, at most while streaming", (busiest - empty) / followers / 1024, "KiB"),
            Figure("delivery lag p50", percentile(lags, 0.5), "ms"),
            Figure("delivery lag p99", percentile(lags, 0.99), "ms"),
            Figure("delivery lag, the worst", max(lags), "ms"),
            Figure("frames delivered", len(receipts) / (crowd.last_at - crowd.first_at), "/s"),
        )
        report.note(
            f"{followers} followers of {JOBS} jobs; {len(receipts)} frames, none lost or repeated; all streams "
            f"opened in {crowd.opening_seconds:.1f} s. The empty web process has {empty / 2**20:.0f} MiB."
        )


def _body(number: int, tokens: int) -> dict[str, Any]:
    """The paces differ, else all jobs would speak at the same moment."""
    pace_ms = 800 + 20 * (number % 21)
    return {"model": MODEL, "input": f"[[step_ms={pace_ms}]] Talk.", "max_output_tokens": tokens}


async def _touch(started: Platform, job_id: str) -> None:
    """Have the web process load what it loads once."""
    async with connected(started.url, started.key) as client:
        async for _ in client.frames(job_id):
            return


class _Control:
    """Hears each frame where the worker publishes it, in a process that has nothing else to do."""

    def __init__(self) -> None:
        self.heard: dict[tuple[str, int], float] = {}
        self._subscriber = redis().pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self._subscriber.psubscribe(**{channel("*"): self._hear})

    def __enter__(self) -> Self:
        self._thread = self._subscriber.run_in_thread(sleep_time=1.0, daemon=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.stop()
        self._thread.join()

    def _hear(self, message: dict[str, bytes]) -> None:
        at = time.monotonic()
        job_id = message["channel"].decode().removeprefix(channel(""))
        self.heard.setdefault((job_id, orjson.loads(message["data"])["seq"]), at)


class _Crowd:
    """All followers, connected once this exists."""

    def __init__(self, started: Platform, parts: Sequence[list[str]]) -> None:
        began = time.monotonic()
        context = multiprocessing.get_context("spawn")
        self._pipes = []
        for part in parts:
            ours, theirs = context.Pipe()
            follow = (theirs, started.url, started.key, part)
            context.Process(target=_follow_all, args=follow, daemon=True).start()
            self._pipes.append(ours)
        for pipe in self._pipes:
            _receive(pipe)
        self.opening_seconds = time.monotonic() - began
        self.first_at = self.last_at = 0.0

    def ended(self, web: psutil.Process) -> tuple[list[Receipt], int]:
        """What all received, and the most memory that `web` had meanwhile."""
        busiest = web.memory_info().rss
        while not all(pipe.poll(0.1) for pipe in self._pipes):
            busiest = max(busiest, web.memory_info().rss)
        receipts = [receipt for pipe in self._pipes for receipt in _receive(pipe)]
        times = [at for _, _, at in receipts]
        self.first_at, self.last_at = min(times), max(times)
        return receipts, busiest


def _receive(pipe: Connection) -> Any:
    if not pipe.poll(PATIENCE_SECONDS):
        raise BenchFailed("The followers did not get ready, or their streams did not end, in time.")
    found = pipe.recv()
    if isinstance(found, str):
        raise BenchFailed(found)
    return found


def _follow_all(pipe: Connection, url: str, key: str, jobs: list[str]) -> None:
    """A client process: say when all are connected, then what they received, or what went wrong."""
    try:
        asyncio.run(_follow(pipe, url, key, jobs))
    except* (StreamBroken, OSError, aiohttp.ClientError) as group:
        pipe.send(f"{len(group.exceptions)} streams broke: {group.exceptions[0]}")


async def _follow(pipe: Connection, url: str, key: str, jobs: list[str]) -> None:
    receipts: list[Receipt] = []
    opening = asyncio.Semaphore(OPENING)
    connections = 0

    def opened() -> None:
        nonlocal connections
        connections += 1
        opening.release()
        if connections == len(jobs):
            pipe.send(True)

    async with connected(url, key) as client, asyncio.TaskGroup() as group:
        for job_id in jobs:
            await opening.acquire()
            group.create_task(_one(client, job_id, opened, receipts))
    pipe.send(receipts)


async def _one(client: Client, job_id: str, opened: Any, receipts: list[Receipt]) -> None:
    seen = Seen()
    while seen.cursor == 0:
        try:
            async for frame, at in client.frames(job_id):
                if seen.cursor == 0:
                    opened()
                seen.take(frame, at)
                if frame["type"] == "output.delta":
                    receipts.append((job_id, frame["seq"], at))
        except aiohttp.WSServerHandshakeError as refusal:
            if refusal.status != BUSY:
                raise
            await asyncio.sleep(BUSY_SECONDS)
    if not seen.status:
        raise StreamBroken(f"a stream ended after {seen.cursor}, before its job did")
