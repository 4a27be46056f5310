"""A receiver of webhooks on this machine: real sockets, and answers as odd as a test wants them."""

import contextlib
import socketserver
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import parse_headers
from typing import Any, Self

import orjson


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)

    @property
    def json(self) -> dict[str, Any]:
        return orjson.loads(self.body)


class Receiver:
    """Answers 200, or what `answers` has next, or always `usual`. `connections` counts those that came."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, context: ssl.SSLContext | None = None) -> None:
        self.received: list[Received] = []
        self.connections = 0
        self.under_way, self.most_under_way = 0, 0
        self.answers: deque[Callable[[Any], None]] = deque()
        self.usual = answer(200)
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self._scheme = "https" if context else "http"
        self._server = _Server((host, port), _Handler)
        self._server.receiver = self
        self._server.context = context
        self.host, self.port = self._server.server_address[:2]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def url(self, path: str = "/hook", host: str | None = None) -> str:
        return f"{self._scheme}://{host or self.host}:{self.port}{path}"

    @property
    def ids(self) -> list[str]:
        return [one.headers["webhook-id"] for one in self.received]

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def answer(status: int, body: bytes = b"", **headers: str) -> Callable[[Any], None]:
    """`answer(429, retry_after="7")`."""
    lines = [f"HTTP/1.1 {status} Answer", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def raw(content: bytes) -> Callable[[Any], None]:
    return lambda handler: handler.wfile.write(content)


def hang(handler: Any) -> None:
    """Say nothing for as long as the test runs."""
    handler.server.receiver.closing.wait(60)


def close(handler: Any) -> None:
    """Leave without a word."""


def drip(head: bytes, piece: bytes) -> Callable[[Any], None]:
    """Say `head`, then `piece` again and again, without an end."""

    def play(handler: Any) -> None:
        handler.wfile.write(head)
        while not handler.server.receiver.closing.wait(0.05):
            handler.wfile.write(piece)

    return play


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 100
    receiver: Receiver
    context: ssl.SSLContext | None

    def get_request(self) -> Any:
        request, address = super().get_request()
        self.receiver.connections += 1
        return request, address

    def finish_request(self, request: Any, client_address: Any) -> None:
        with contextlib.suppress(OSError):  # whoever sent may leave at any time
            if self.context is None:
                super().finish_request(request, client_address)
                return
            with self.context.wrap_socket(request, server_side=True) as wrapped:
                super().finish_request(wrapped, client_address)


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        line = self.rfile.readline().decode()
        if not line:
            return
        headers = {name.lower(): value for name, value in parse_headers(self.rfile).items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        receiver = self.server.receiver
        with receiver.lock:
            receiver.received.append(Received(line.split()[1], headers, body))
            receiver.under_way += 1
            receiver.most_under_way = max(receiver.most_under_way, receiver.under_way)
            play = receiver.answers.popleft() if receiver.answers else receiver.usual
        try:
            play(self)
        finally:
            with receiver.lock:
                receiver.under_way -= 1
