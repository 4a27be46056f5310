"""The client's socket under a stream. Writes have a deadline, kernel buffers a bound, and a client that left is
noticed. It knows neither HTTP nor WebSocket.
"""

import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from config.settings import settings

# What the kernel may hold for one reader (Linux doubles it); without a bound it grows to megabytes.
SEND_BUFFER_BYTES: Final = 65_536
# Linux calls a socket writable from a third of that on, so a piece of this size never waits then.
PIECE_BYTES: Final = 16_384


def of_request(environ: dict[str, Any]) -> socket.socket | None:
    """The connection of a request, where the server shows it."""
    found: socket.socket | None = environ.get("gunicorn.socket") or environ.get("werkzeug.socket")
    return found


def prepare(sock: socket.socket) -> None:
    """Make `sock` fit for a stream."""
    sock.settimeout(settings().write_timeout_seconds)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # A peer that vanished without a word is given up, else the kernel tries for a quarter of an hour.
            limit_ms = int(1000 * (settings().ping_seconds + settings().write_timeout_seconds))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit_ms)


def release(sock: socket.socket) -> None:
    """After the stream: the next request on this connection waits as long as the server wants it to."""
    sock.settimeout(None)


def write(sock: socket.socket, data: bytes) -> None:
    """All of `data`, each piece within the deadline. Raises `OSError`; then part of it may be on its way."""
    view = memoryview(data)
    for start in range(0, len(data), PIECE_BYTES):
        sock.sendall(view[start : start + PIECE_BYTES])


def read_now(sock: socket.socket, size: int, flags: int = 0) -> bytes | None:
    """What is there: None for nothing, b"" after the end. Raises `OSError`."""
    deadline = sock.gettimeout()
    sock.settimeout(0)
    try:
        return sock.recv(size, flags)
    except (BlockingIOError, TimeoutError, ssl.SSLWantReadError):
        return None
    finally:
        sock.settimeout(deadline)


def hang_up(sock: socket.socket) -> None:
    """Tell the server, too, that this connection is over."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def is_gone(sock: socket.socket) -> bool:
    """Whether the client closed its side. A TLS socket cannot be asked without reading."""
    if isinstance(sock, ssl.SSLSocket):
        return False
    try:
        return read_now(sock, 1, socket.MSG_PEEK) == b""
    except OSError:
        return True


def is_writable_in_time(sock: socket.socket) -> bool:
    """Wait until the client takes more, at most until the deadline."""
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLOUT)
    return bool(poll.poll(1000 * settings().write_timeout_seconds))


def takes(sock: socket.socket, piece: bytes) -> bool:
    """Whether the client is there and, if there is something to write, takes it in time."""
    return not is_gone(sock) and (not piece or is_writable_in_time(sock))


def pieces(chunk: bytes) -> Iterator[bytes]:
    """What fits a socket's buffer at once; an empty chunk as it is."""
    yield chunk[:PIECE_BYTES]
    for start in range(PIECE_BYTES, len(chunk), PIECE_BYTES):
        yield chunk[start : start + PIECE_BYTES]


def finish(sock: socket.socket, seconds: float) -> None:
    """Say that nothing more comes and wait for the client to close: closing with unread input would reset the
    connection, and the client could lose the last frames.
    """
    try:
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(seconds)
        while sock.recv(4096):
            pass
    except OSError:
        return
