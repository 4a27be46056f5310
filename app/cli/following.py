"""The events of a job or a batch over the WebSocket, to its end, however often the connection breaks. It must
not know how they are shown.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.connection import Connection

from app import clock
from app.batches.states import BatchStatus
from app.cli.client import Api, batch_path, job_path
from app.cli.errors import CommandFailed, Unreachable
from app.jobs.states import Status

TICK_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
GIVE_UP_SECONDS: Final = 600.0
REFUSED: Final = range(400, 500)
TOO_BUSY: Final = frozenset({408, 425, 429})
REFUSED_CLOSES: Final = range(4400, 4500)  # an HTTP status plus 4000, where the refusal came after the upgrade


@dataclass(frozen=True, slots=True)
class Subject:
    """What is followed; `again` is the command that goes on after the event `{after}`."""

    kind: str
    path: str
    statuses: type[Status | BatchStatus]
    again: str

    def has_ended(self, event: dict[str, Any]) -> bool:
        return any(status.is_terminal and status.event_type == event["type"] for status in self.statuses)


def the_job(job_id: str) -> Subject:
    return Subject("job", job_path(job_id), Status, f"longhaul watch {job_id} --after {{after}}")


def the_batch(batch_id: str) -> Subject:
    return Subject("batch", batch_path(batch_id), BatchStatus, f"longhaul batch watch {batch_id}")


class Follower:
    """Iterating gives the events after `cursor` up to the terminal one, and None about every `TICK_SECONDS` in
    which none came. Raises `CommandFailed`.
    """

    def __init__(self, api: Api, subject: Subject, after: int) -> None:
        self.cursor = after
        self.is_connected = False
        self._api = api
        self._subject = subject
        self._failures = 0
        self._heard_at = clock.monotonic()

    def __iter__(self) -> Iterator[dict[str, Any] | None]:
        while True:
            for event in self._events():
                yield event
                if event and self._subject.has_ended(event):
                    return
            self.is_connected = False
            if ending := self._find_ending():
                yield ending
                return
            yield from self._pause()

    def _events(self) -> Iterator[dict[str, Any] | None]:
        """Those of one connection."""
        try:
            with self._api.stream(self._subject.path, self.cursor) as socket:
                self.is_connected = True
                for event in _receive(socket):
                    if event is not None:
                        self.cursor = event.get("seq", self.cursor)  # a notice has none
                        self._failures = 0
                    self._heard_at = clock.monotonic()
                    yield event
        except InvalidStatus as error:
            status = error.response.status_code
            if status in REFUSED and status not in TOO_BUSY:
                raise self._api.refusal(status, error.response.body or b"") from None
        except ConnectionClosed as closed:
            if closed.rcvd and closed.rcvd.code in REFUSED_CLOSES:
                body = orjson.dumps({"error": {"message": closed.rcvd.reason}})
                raise self._api.refusal(closed.rcvd.code - 4000, body) from None
        except (WebSocketException, OSError):
            return

    def _find_ending(self) -> dict[str, Any] | None:
        """The terminal event of what ended at or before the cursor, from the job or batch itself."""
        try:
            found = self._api.call("GET", self._subject.path)
        except Unreachable:
            return None
        status = self._subject.statuses(found["status"])
        # What ended while the connection was down still has events to come.
        if not status.is_terminal or found.get("last_seq", 0) > self.cursor:
            return None
        return {**found, "type": status.event_type, "seq": self.cursor}

    def _pause(self) -> Iterator[None]:
        if clock.monotonic() - self._heard_at > GIVE_UP_SECONDS:
            raise CommandFailed(
                f"{self._api.url} has been away for {GIVE_UP_SECONDS / 60:.0f} minutes. "
                f"The {self._subject.kind} goes on: {self._subject.again.format(after=self.cursor)}"
            )
        longest = PAUSE_SECONDS[min(self._failures, len(PAUSE_SECONDS) - 1)]
        self._failures += 1
        until = clock.monotonic() + longest * random.uniform(0.5, 1)  # noqa: S311 - spreads clients, guards nothing
        while (left := until - clock.monotonic()) > 0:
            yield None
            clock.sleep(min(left, TICK_SECONDS))


def _receive(socket: Connection) -> Iterator[dict[str, Any] | None]:
    """Raises `ConnectionClosed` where the connection breaks; ends where the server ended it properly."""
    while True:
        try:
            message = socket.recv(timeout=TICK_SECONDS)
        except TimeoutError:
            yield None
            continue
        except ConnectionClosed as closed:
            if closed.rcvd and closed.rcvd.code == 1000:
                return
            raise
        yield orjson.loads(message)
