"""The one Redis reader of a process: it listens for the jobs that somebody here follows and hands each frame to
their inboxes. An inbox is bounded; a follower that falls behind loses its inbox, not its place, and reads on
from Postgres. While Redis is away, or a message was lost, a look into Postgres every second tells followers
that there is more to read.

Threads here become greenlets in a gevent server.
"""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import structlog
from redis import Redis
from sqlalchemy.exc import SQLAlchemyError

from app import clock
from app.db import transaction
from app.jobs.log import last_seqs
from app.redis import RedisError, client
from app.streams import frames, tail
from app.streams.frames import Frame

log = structlog.get_logger(__name__)

INBOX_FRAMES: Final = 256
POLL_SECONDS: Final = 1.0
RECONNECT_SECONDS: Final = 0.5
# Redis wants a subscriber to have a channel; this one carries nothing.
IDLE_CHANNEL: Final = "lh:idle"


class Inbox:
    """Frames for one follower. `behind` says that some were dropped: read the log from `cursor` on."""

    __slots__ = ("_frames", "_ready", "behind", "cursor")

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self._ready = threading.Event()
        self.behind = False
        self.cursor = 0

    def put(self, frame: Frame) -> None:
        if len(self._frames) >= INBOX_FRAMES:
            self.nudge()
            return
        self._frames.append(frame)
        self._ready.set()

    def nudge(self) -> None:
        """Say that the log has more than this inbox."""
        self._frames.clear()
        self.behind = True
        self._ready.set()

    def take(self, timeout_seconds: float) -> list[Frame]:
        """What has come, after waiting for something to come."""
        self._ready.wait(timeout_seconds)
        self._ready.clear()
        taken = list(self._frames)
        self._frames.clear()
        return taken


class Watched:
    """A job that somebody follows."""

    __slots__ = ("heard_at", "inboxes")

    def __init__(self) -> None:
        self.inboxes: set[Inbox] = set()
        self.heard_at = clock.monotonic()


class Hub:
    """Owns two threads, started with the first follower."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._jobs: dict[str, Watched] = {}
        self._lock = threading.Lock()
        self._subscriber: Any = None
        self._started = False

    @contextmanager
    def watch(self, job_id: str) -> Iterator[Inbox]:
        """An inbox that receives the job's frames from now on."""
        inbox = Inbox()
        self._start()
        with self._lock:
            watched = self._jobs.get(job_id)
            if watched is None:
                watched = self._jobs[job_id] = Watched()
                self._tell("subscribe", tail.channel(job_id))
            watched.inboxes.add(inbox)
        try:
            yield inbox
        finally:
            with self._lock:
                watched.inboxes.discard(inbox)
                if not watched.inboxes and self._jobs.get(job_id) is watched:
                    del self._jobs[job_id]
                    self._tell("unsubscribe", tail.channel(job_id))

    def _start(self) -> None:
        with self._lock:
            if self._started:
                return
            self._started = True
            for run in (self._listen, self._poll):
                threading.Thread(target=run, name=run.__name__, daemon=True).start()

    def _tell(self, command: str, channel: str) -> None:
        """Subscribe or unsubscribe. If the connection is gone, the next one subscribes to all anew."""
        if self._subscriber is None:
            return
        try:
            getattr(self._subscriber, command)(channel)
        except (RedisError, OSError):
            log.info("hub.subscribe_failed", channel=channel)

    def _listen(self) -> None:
        while True:
            try:
                self._subscribe_to_all()
                while True:
                    message = self._subscriber.get_message(ignore_subscribe_messages=True, timeout=5.0)
                    if message is not None:
                        self._deliver(message["channel"], message["data"])
            except (RedisError, OSError) as error:
                log.warning("hub.redis_lost", error=str(error))
                self._nudge_all()
                clock.sleep(RECONNECT_SECONDS)

    def _subscribe_to_all(self) -> None:
        """On a new connection. Followers may have missed frames meanwhile."""
        with self._lock:
            subscriber = self._redis.pubsub()  # type: ignore[no-untyped-call]
            subscriber.subscribe(IDLE_CHANNEL, *(tail.channel(job_id) for job_id in self._jobs))
            self._subscriber = subscriber
        self._nudge_all()

    def _nudge_all(self) -> None:
        for watched in list(self._jobs.values()):
            for inbox in list(watched.inboxes):
                inbox.nudge()

    def _deliver(self, channel: bytes, body: bytes) -> None:
        watched = self._jobs.get(channel.decode().removeprefix(tail.channel("")))
        if watched is None:
            return
        frame = frames.decode(body)
        watched.heard_at = clock.monotonic()
        for inbox in list(watched.inboxes):
            inbox.put(frame)

    def _poll(self) -> None:
        while True:
            clock.sleep(POLL_SECONDS)
            try:
                self._look_into_postgres()
            except SQLAlchemyError as error:
                log.warning("hub.poll_failed", error=str(error))

    def _look_into_postgres(self) -> None:
        quiet_since = clock.monotonic() - POLL_SECONDS
        quiet = {job_id: w for job_id, w in list(self._jobs.items()) if w.heard_at < quiet_since}
        if not quiet:
            return
        with transaction() as session:
            stored = last_seqs(session, list(quiet))
        for job_id, watched in quiet.items():
            last = stored.get(job_id, 0)
            for inbox in list(watched.inboxes):
                # A job without a log is gone, as who reads it will find.
                if last > inbox.cursor or not last:
                    inbox.nudge()


@cache
def hub() -> Hub:
    """The process's hub."""
    return Hub(client())
