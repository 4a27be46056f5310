"""Frames as server-sent events, to the end of what is followed. It knows HTTP and the client's socket, and
nothing of what the frames are about.
"""

import random
import socket
from collections.abc import Iterator
from typing import Final

import structlog
from flask import Response, request
from pydantic import BaseModel

from app import clock
from app.api import draining, following, wire
from app.api.bodies import parse
from app.api.errors import KeyMissing
from app.jobs.errors import JobError
from app.streams.frames import Frame
from config.settings import settings

log = structlog.get_logger(__name__)

MEDIA_TYPE: Final = "text/event-stream"


class Position(BaseModel):
    after: following.Cursor = 0


def is_wanted() -> bool:
    """Whether the client would rather have a stream than JSON."""
    return request.accept_mimetypes.best_match(["application/json", MEDIA_TYPE]) == MEDIA_TYPE


def position() -> int:
    """Where to go on. `Last-Event-ID` wins: a browser that connects again repeats the URL, `after` included."""
    last = request.headers.get("Last-Event-ID")
    values = {"after": last} if last else {"after": request.args.get("after", "0")}
    return parse(Position, values).after


def answer(subject: str, lists: Iterator[list[Frame]]) -> Response:
    """A stream of what `lists` gives: an empty list where nothing came for a while. Raises `ServerBusy`."""
    following.require_place()
    sock = wire.of_request(request.environ)
    if sock is not None:
        wire.prepare(sock)
    response = Response(_server_sent(subject, lists, sock), mimetype=MEDIA_TYPE)
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    return response


def _server_sent(subject: str, lists: Iterator[list[Frame]], sock: socket.socket | None) -> Iterator[bytes]:
    yield b": following\n\n"
    for piece in _pieces(subject, lists):
        if sock is not None and not wire.takes(sock, piece):
            log.info("follower.dropped", subject=subject)
            wire.hang_up(sock)
            return
        if piece:
            yield piece
    if draining.has_begun():
        # Not all of them at once.
        yield b": this server stops; connect again\nretry: %d\n\n" % random.randint(200, 2000)  # noqa: S311 - guards nothing
    if sock is not None:
        wire.release(sock)


def _pieces(subject: str, lists: Iterator[list[Frame]]) -> Iterator[bytes]:
    """The stream in pieces that fit a socket's buffer, empty ones where nothing came for a second."""
    quiet_since = clock.monotonic()
    try:
        for frames in lists:
            chunk = b"".join(map(_event, frames))
            del frames
            if not chunk and clock.monotonic() - quiet_since >= settings().ping_seconds:
                chunk = b": ping\n\n"
            if chunk:
                quiet_since = clock.monotonic()
            yield from wire.pieces(chunk)
            del chunk
    except (JobError, KeyMissing) as error:
        log.info("follower.ended", subject=subject, why=error.code)


def _event(frame: Frame) -> bytes:
    if not frame.seq:
        # Not of the log: without an id, a browser goes on after the last that had one.
        return b"event: %s\ndata: %s\n\n" % (frame.type.encode(), frame.body)
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (frame.seq, frame.type.encode(), frame.body)
