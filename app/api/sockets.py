"""The WebSocket that flask-sock is given: `simple_websocket.Server` for the handshake, and our own, smaller way
of sending. One greenlet per follower and no reader thread: incoming frames (pongs, a close) are looked at
between two batches. Every write is whole or ends the connection, so a slow reader never gets half a frame.
"""

import socket
from collections.abc import Iterable
from typing import Any, Final

from simple_websocket import ConnectionClosed, Server
from wsproto.events import Request
from wsproto.frame_protocol import CloseReason, FrameProtocol, Opcode, ParseFailed

from app import clock
from config.settings import settings

TICKET_PROTOCOL: Final = "longhaul.ticket."
MAX_MESSAGE_BYTES: Final = 16_384
READ_BYTES: Final = 4096


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
        self.sock.settimeout(settings().write_timeout_seconds)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.environ = None
        self._frames = FrameProtocol(client=False, extensions=[])
        self._heard_at = self._pinged_at = self._looked_at = clock.monotonic()
        # The handshake's parser is not needed any more, and large.
        self.ws = None

    def choose_subprotocol(self, request: Request) -> str | None:
        return next((name for name in request.subprotocols if name.startswith(TICKET_PROTOCOL)), None)

    def send_texts(self, bodies: Iterable[bytes]) -> None:
        """Each body as a text message, in one write. Raises `ConnectionClosed`."""
        self._write(b"".join([_text_frame(body) for body in bodies]))

    def look(self) -> None:
        """Take what the client sent, and ping a quiet one. Cheap to call often. Raises `ConnectionClosed`."""
        now = clock.monotonic()
        if now - self._looked_at < 1.0:
            return
        self._looked_at = now
        self._read()
        if now - self._heard_at > 2 * settings().ping_seconds + settings().write_timeout_seconds:
            self._drop()
        if now - self._pinged_at >= settings().ping_seconds:
            self._pinged_at = now
            self._write(self._frames.ping())

    def close(self, reason: int | None = None, message: str | None = None) -> None:
        """Say goodbye; what the client answers is not waited for."""
        if not self.connected:
            return
        self._write(self._frames.close(reason or CloseReason.NORMAL_CLOSURE, message))
        self.connected = False

    def _write(self, data: bytes) -> None:
        if not self.connected:
            raise ConnectionClosed(self.close_reason, self.close_message)
        try:
            self.sock.sendall(data)
        except OSError:
            self._drop()

    def _read(self) -> None:
        while self.connected:
            try:
                self.sock.settimeout(0)
                data = self.sock.recv(READ_BYTES)
            except (BlockingIOError, TimeoutError):
                return
            except OSError:
                self._drop()
            finally:
                self.sock.settimeout(settings().write_timeout_seconds)
            if not data:
                self._drop()
            self._take(data)

    def _take(self, data: bytes) -> None:
        self._heard_at = clock.monotonic()
        size = 0
        try:
            self._frames.receive_bytes(data)
            for frame in self._frames.received_frames():
                if frame.opcode is Opcode.CLOSE:
                    self.close(CloseReason.NORMAL_CLOSURE)
                    raise ConnectionClosed(CloseReason.NORMAL_CLOSURE, None)
                if frame.opcode is Opcode.PING:
                    self._write(self._frames.pong(frame.payload))
                elif frame.opcode is not Opcode.PONG:
                    size += len(frame.payload)
        except ParseFailed as error:
            self.close(error.code)
            raise ConnectionClosed(error.code, None) from error
        if size > MAX_MESSAGE_BYTES:
            self.close(CloseReason.MESSAGE_TOO_BIG, "Followers have nothing to say.")
            raise ConnectionClosed(CloseReason.MESSAGE_TOO_BIG, None)

    def _drop(self) -> None:
        """The connection is broken, perhaps in the middle of a frame: nothing more may be written."""
        self.connected = False
        raise ConnectionClosed(CloseReason.ABNORMAL_CLOSURE, None)


def _text_frame(payload: bytes) -> bytes:
    """A whole, unmasked text message (RFC 6455, 5.2)."""
    size = len(payload)
    if size < 126:
        return b"\x81%c%b" % (size, payload)
    if size < 65_536:
        return b"\x81\x7e%b%b" % (size.to_bytes(2, "big"), payload)
    return b"\x81\x7f%b%b" % (size.to_bytes(8, "big"), payload)
