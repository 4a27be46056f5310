"""The WebSocket that flask-sock is given: `simple_websocket.Server` for the handshake, and our own, smaller way
of sending. One greenlet per follower and no reader thread: incoming frames (pongs, a close) are looked at
between two batches. Every write is whole or ends the connection, so a slow reader never gets half a frame.
"""

from collections.abc import Iterable
from typing import Any, Final, NoReturn

import structlog
from flask import g, request
from simple_websocket import ConnectionClosed, Server
from wsproto.events import Request
from wsproto.frame_protocol import CloseReason, Frame, FrameProtocol, Opcode, ParseFailed

from app import clock
from app.api import wire
from app.api.errors import OriginForbidden
from config.settings import settings

log = structlog.get_logger(__name__)

TICKET_PROTOCOL: Final = "longhaul.ticket."
MAX_MESSAGE_BYTES: Final = 16_384
READ_BYTES: Final = 4096
# A client that sends without pause may not keep the process from its other followers.
READS_A_LOOK: Final = 8
LOOK_SECONDS: Final = 1.0
GOODBYE_SECONDS: Final = 1.0


class _NoThread:
    """Stands in for the reader thread that `simple_websocket` would start."""

    name = ""

    def __init__(self, target: Any) -> None:
        pass

    def start(self) -> None:
        pass


class FollowerSocket(Server):  # type: ignore[misc]  # simple_websocket ships no types
    """Send frames, notice what the client does, close with a code."""

    connected: bool

    def __init__(self, environ: dict[str, Any]) -> None:
        # Compression would cost memory for each connection; without the header none is negotiated.
        environ = {name: v for name, v in environ.items() if name != "HTTP_SEC_WEBSOCKET_EXTENSIONS"}
        super().__init__(environ, thread_class=_NoThread)
        wire.prepare(self.sock)
        self.environ = None
        self._frames = FrameProtocol(client=False, extensions=[])
        self._message_bytes = 0
        self._heard_at = self._sent_at = self._pinged_at = self._looked_at = clock.monotonic()
        # The handshake's parser is not needed any more, and large.
        self.ws = None

    def choose_subprotocol(self, request: Request) -> str | None:
        return next((name for name in request.subprotocols if name.startswith(TICKET_PROTOCOL)), None)

    def send_texts(self, bodies: Iterable[bytes]) -> None:
        """Each body as a text message, in one write. Raises `ConnectionClosed`."""
        self._write(b"".join([_text_frame(body) for body in bodies]))
        self._sent_at = clock.monotonic()

    def look(self) -> None:
        """Take what the client sent, and ping a quiet one. Cheap to call often. Raises `ConnectionClosed`."""
        now = clock.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        self._read()
        self._keep_alive(now)

    def _keep_alive(self, now: float) -> None:
        # A pong comes behind all that the client still has to read, so only a quiet stream waits for it; on a
        # busy one the writes have a deadline.
        patience_seconds = 2 * settings().ping_seconds + settings().write_timeout_seconds
        if now - max(self._heard_at, self._sent_at) > patience_seconds:
            self._drop("it answers no ping")
        if now - self._pinged_at >= settings().ping_seconds:
            self._pinged_at = now
            self._control(self._frames.ping())

    def close(self, reason: int | None = None, message: str | None = None) -> None:
        """Say goodbye and wait a moment for the client to do so too."""
        if not self.connected:
            return
        self._write(self._frames.close(reason or CloseReason.NORMAL_CLOSURE, message))
        self.connected = False
        wire.finish(self.sock, GOODBYE_SECONDS)

    def _write(self, data: bytes) -> None:
        if not self.connected:
            raise ConnectionClosed(self.close_reason, self.close_message)
        try:
            wire.write(self.sock, data)
        except OSError as error:
            self._drop(str(error))

    def _read(self) -> None:
        for _ in range(READS_A_LOOK):
            try:
                data = wire.read_now(self.sock, READ_BYTES)
            except OSError as error:
                self._drop(str(error))
            if data is None:
                return
            if not data:
                self._drop("it left")
            self._take(data)

    def _take(self, data: bytes) -> None:
        self._heard_at = clock.monotonic()
        try:
            self._frames.receive_bytes(data)
            for frame in self._frames.received_frames():
                self._answer(frame)
        except ParseFailed as error:
            self._end(error.code)

    def _answer(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            self._end(CloseReason.NORMAL_CLOSURE)
        elif frame.opcode is Opcode.PING:
            self._control(self._frames.pong(frame.payload))
        elif frame.opcode is not Opcode.PONG:
            self._hear(frame)

    def _control(self, data: bytes) -> None:
        self._write(data)

    def _hear(self, frame: Frame) -> None:
        """A piece of a message."""
        self._message_bytes += len(frame.payload)
        if self._message_bytes > MAX_MESSAGE_BYTES:
            self._end(CloseReason.MESSAGE_TOO_BIG, "Followers have nothing to say.")
        if frame.message_finished:
            self._message_bytes = 0

    def _end(self, code: int, message: str | None = None) -> NoReturn:
        self.close(code, message)
        raise ConnectionClosed(code, message)

    def _drop(self, why: str) -> NoReturn:
        """The connection is broken, perhaps in the middle of a frame: nothing more may be written."""
        self.connected = False
        log.info("follower.dropped", why=why)
        raise ConnectionClosed(CloseReason.ABNORMAL_CLOSURE, None)


def accept(environ: dict[str, Any], **_: Any) -> FollowerSocket:
    """For flask-sock: a socket of the kind that this request chose, else a follower's."""
    kind: type[FollowerSocket] = g.get("socket_kind", FollowerSocket)
    return kind(environ)


def check_origin(*, has_key: bool) -> None:
    """Any page can open a WebSocket from a visitor's browser; only ours, and those we are told of, may. Raises
    `OriginForbidden`.
    """
    origin = request.headers.get("Origin")
    if origin is None and has_key:
        return
    if origin not in {request.host_url.rstrip("/"), settings().base_url, *settings().allowed_origins}:
        raise OriginForbidden(f"Pages from '{origin}' may not open streams here.")


def _text_frame(payload: bytes) -> bytes:
    """A whole, unmasked text message (RFC 6455, 5.2)."""
    size = len(payload)
    if size < 126:
        return b"\x81%c%b" % (size, payload)
    if size < 65_536:
        return b"\x81\x7e%b%b" % (size.to_bytes(2, "big"), payload)
    return b"\x81\x7f%b%b" % (size.to_bytes(8, "big"), payload)
