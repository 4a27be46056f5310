"""Who leads of several processes of a kind, and what wakes the dispatcher that does. It knows nothing of the
line.
"""

import threading
from typing import Final

import structlog
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from app import dispatch
from app.db import engine
from app.redis import RedisError, client

log = structlog.get_logger(__name__)

RECONNECT_SECONDS: Final = 1.0
# Of pg_advisory_lock.
DISPATCHER_LOCK: Final = 7305812
BATCHES_LOCK: Final = 7305813


class Leadership:
    """Who leads: the holder of a lock that Postgres frees when the connection ends, however it ends."""

    def __init__(self, lock: int) -> None:
        self._lock = lock
        self._connection: Connection | None = None

    def is_mine(self) -> bool:
        """Take it if nobody has it. Raises `SQLAlchemyError` while Postgres is away."""
        try:
            if self._connection is None:
                self._connection = engine().connect().execution_options(isolation_level="AUTOCOMMIT")
            # Locking again would count up: ask for it only once, and else whether the connection lives.
            if self._connection.info.get("leads"):
                self._connection.execute(text("SELECT 1"))
                return True
            found = self._connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": self._lock})
            self._connection.info["leads"] = bool(found)
            return bool(found)
        except SQLAlchemyError:
            self.drop()
            raise

    def drop(self) -> None:
        """Give it up, with the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.info["leads"] = False
            connection.invalidate()
            connection.close()


class Bell:
    """Rings when somebody frees or wants a slot; a thread listens, and outlives Redis."""

    def __init__(self) -> None:
        self._rung = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._listen_forever, name="bell", daemon=True).start()

    def wait(self, seconds: float) -> None:
        self._rung.wait(seconds)
        self._rung.clear()

    def ring(self) -> None:
        self._rung.set()

    def close(self) -> None:
        self._closed.set()

    def _listen_forever(self) -> None:
        while not self._closed.is_set():
            try:
                self._listen()
            except (RedisError, OSError) as error:
                log.warning("bell.redis_lost", error=str(error))
                self._closed.wait(RECONNECT_SECONDS)

    def _listen(self) -> None:
        with client().pubsub(ignore_subscribe_messages=True) as subscriber:  # type: ignore[no-untyped-call]
            subscriber.subscribe(dispatch.WAKE_CHANNEL)
            while not self._closed.is_set():
                if subscriber.get_message(timeout=1.0):
                    self._rung.set()
