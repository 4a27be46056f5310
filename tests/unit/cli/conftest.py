"""A server that says what a test wrote down: the job over HTTP, its events over WebSocket, cut off where the
test wants it.
"""

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

JOB_ID = "job_" + "0" * 32
CUT = "cut"  # the connection breaks
HANG = "hang"  # nothing more comes


def status(seq: int, name: str, **fields: Any) -> dict[str, Any]:
    event = {"type": f"job.{name}", "seq": seq, "job_id": JOB_ID, "status": name, **fields}
    return {"at": "2026-01-01T00:00:00.000001Z", **event}


def delta(seq: int, offset: int, text: str, first_seq: int | None = None) -> dict[str, Any]:
    return {"type": "output.delta", "seq": seq, "first_seq": first_seq or seq, "offset": offset, "delta": text}


def rewind(seq: int, offset: int) -> dict[str, Any]:
    return {"type": "output.rewind", "seq": seq, "offset": offset}


@dataclass
class Script:
    """`connections` is what each WebSocket gets, in turn: events, a tuple of what the job is from then on, then
    a close code, `CUT`, `HANG`, or an HTTP status alone in place of the upgrade.
    """

    connections: list[list[Any]] = field(default_factory=list)
    job: dict[str, Any] = field(default_factory=lambda: {"id": JOB_ID, "status": "queued", "created_at": 0})
    asked: list[str] = field(default_factory=list)  # paths of the WebSockets
    keys: list[str | None] = field(default_factory=list)
    url: str = ""
    over: threading.Event = field(default_factory=threading.Event)

    def answer(self, connection: ServerConnection, request: Request) -> Response | None:
        self.keys.append(request.headers.get("Authorization"))
        if "/stream" not in request.path:
            return _json(200, self.job)
        self.asked.append(request.path)
        first = self.connections[0][0] if self.connections else 404
        if isinstance(first, int) and first < 1000:
            if self.connections:
                del self.connections[0]
            return _json(first, {"error": {"message": f"Refused with {first}."}})
        return None

    def play(self, connection: ServerConnection) -> None:
        for step in self.connections.pop(0):
            match step:
                case dict():
                    connection.send(orjson.dumps(step).decode())
                case (job,):
                    self.job = job
                case "cut":
                    connection.socket.shutdown(socket.SHUT_RDWR)
                case "hang":
                    self.hang(connection)
                case int():
                    connection.close(step, "Said so.")

    def hang(self, connection: ServerConnection) -> None:
        while not self.over.is_set():
            try:
                connection.recv(timeout=0.05)
            except TimeoutError:
                continue
            except ConnectionClosed:
                return


def _json(code: int, value: Any) -> Response:
    body = orjson.dumps(value)
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
    return Response(code, "", Headers(headers), body)


@pytest.fixture
def script() -> Iterator[Script]:
    written = Script()
    server: Server = serve(written.play, "127.0.0.1", 0, process_request=written.answer, compression=None)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    written.url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
    yield written
    written.over.set()
    server.shutdown()
    thread.join()
