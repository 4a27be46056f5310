"""A call as a stream of server-sent events: written in pieces with a deadline, kept alive by comments, ended
with an error where the server or the caller's key ends first. Which words are sent is its `Story`'s to say.
"""

import socket
from collections.abc import Iterator
from typing import Final, Protocol

import structlog
from flask import Response, request

from app import clock
from app.api import draining, following, wire
from app.api.auth import key_hash
from app.api.calls.calling import Call, stopping
from app.api.errors import KeyMissing, NotServed, ServerStopping
from app.jobs.errors import JobNotFound
from app.streams.frames import Frame
from config.settings import settings

log = structlog.get_logger(__name__)

PING: Final = b": ping\n\n"


class Story(Protocol):
    """What is sent of a call."""

    @property
    def is_over(self) -> bool:
        """Nothing more is to be sent of its frames."""

    def tell(self, index: int, batch: list[Frame]) -> bytes: ...

    def finish(self) -> bytes: ...

    def broken(self, code: str, message: str) -> bytes: ...


def stream(call: Call, story: Story) -> Response:
    """The answer; it closes the call."""
    try:
        sock = wire.of_request(request.environ)
        if sock is not None:
            wire.prepare(sock)
        response = Response(_sent(call, story, key_hash(), sock), mimetype="text/event-stream")
    except BaseException:
        call.close()
        raise
    response.call_on_close(call.close)
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    return response


def _sent(call: Call, story: Story, key: bytes, sock: socket.socket | None) -> Iterator[bytes]:
    # The first piece goes out at once, whatever it is: with it go the headers, which name the jobs.
    quiet_since = float("-inf")
    with following.place():
        for told in _told(call, story, key):
            chunk = told
            if not chunk and clock.monotonic() - quiet_since >= settings().ping_seconds:
                chunk = PING
            if chunk:
                quiet_since = clock.monotonic()
            for piece in wire.pieces(chunk):
                if sock is not None and not wire.takes(sock, piece):
                    log.info("call.client_left", jobs=[job.id for job in call.jobs])
                    wire.hang_up(sock)
                    return
                if piece:
                    yield piece
    if sock is not None:
        wire.release(sock)


def _told(call: Call, story: Story, key: bytes) -> Iterator[bytes]:
    """What is to be sent, empty where nothing came."""
    checked_at = clock.monotonic()
    try:
        for index, batch in call.follow():
            yield story.tell(index, batch)
            if story.is_over:
                break
            if draining.has_begun():
                call.give_up()
                yield story.broken(ServerStopping.code, stopping(call))
                return
            if clock.monotonic() - checked_at >= settings().ping_seconds:
                checked_at = clock.monotonic()
                following.require_valid(key)
    except (JobNotFound, KeyMissing, NotServed) as error:
        yield story.broken(error.code, str(error))
        return
    if not call.is_over:
        call.give_up()
    yield story.finish()
