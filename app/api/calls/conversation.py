"""A WebSocket on which both sides speak: one thread reads whole messages, any thread sends. It knows framing
and limits, and no message.
"""

import select
import socket
import ssl
import threading
from collections import deque
from typing import Any, Final, NoReturn

from flask import g
from wsproto.frame_protocol import CloseReason, Frame

from app import clock
from app.api import wire
from app.api.sockets import FollowerSocket
from config.settings import settings

LARGE_READ_BYTES: Final = 65_536


class ConversationSocket(FollowerSocket):
    """`send_texts` is for any thread; `receive` and `close` are for one."""

    def __init__(self, environ: dict[str, Any]) -> None:
        self._writing = threading.Lock()
        self._controls: deque[bytes] = deque()
        self._pieces: list[bytes] = []
        self._heard: list[bytes] = []
        super().__init__(environ)

    def receive(self, seconds: float) -> list[bytes]:
        """The messages that came, text or binary; none where nothing came for so long. Raises
        `ConnectionClosed`.
        """
        self._keep_alive(clock.monotonic())
        self._flush()
        if _is_readable(self.sock, seconds):
            self._read()
        heard, self._heard = self._heard, []
        return heard

    def _read(self) -> None:
        # The deadline of the socket is for writers too, who may be at it now: it stays as it is.
        try:
            data = self.sock.recv(LARGE_READ_BYTES)
        except (TimeoutError, ssl.SSLWantReadError):
            return
        except OSError as error:
            self._drop(str(error))
        if not data:
            self._drop("it left")
        self._take(data)

    def _hear(self, frame: Frame) -> None:
        piece = frame.payload.encode() if isinstance(frame.payload, str) else bytes(frame.payload)
        self._pieces.append(piece)
        self._message_bytes += len(piece)
        if self._message_bytes > (limit := settings().max_body_bytes):
            self._end(CloseReason.MESSAGE_TOO_BIG, f"The limit of a message is {limit} bytes.")
        if frame.message_finished:
            self._heard.append(b"".join(self._pieces))
            self._pieces, self._message_bytes = [], 0

    def _control(self, data: bytes) -> None:
        # Who reads must not wait for who writes: a client that sends before it reads on would wait for ever.
        self._controls.append(data)
        self._flush()

    def _flush(self) -> None:
        if self._controls and self._writing.acquire(blocking=False):
            try:
                super()._write(self._take_controls())
            finally:
                self._writing.release()

    def _write(self, data: bytes) -> None:
        with self._writing:
            super()._write(self._take_controls() + data)

    def _take_controls(self) -> bytes:
        taken = [self._controls.popleft() for _ in range(len(self._controls))]
        return b"".join(taken)

    def _drop(self, why: str) -> NoReturn:
        # Whoever reads or writes at this moment learns of it too.
        wire.hang_up(self.sock)
        super()._drop(why)


def converse() -> None:
    """Before the handshake: this request opens a conversation."""
    g.socket_kind = ConversationSocket


def _is_readable(sock: socket.socket, seconds: float) -> bool:
    if isinstance(sock, ssl.SSLSocket) and sock.pending():
        return True
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return bool(poll.poll(1000 * seconds))
