"""A client of OpenAI's API that knows nothing of its SDK: calls on threads of their own, and streams read event
by event.
"""

import threading
from typing import Any

import httpx
import orjson


class Call:
    """One request to a running server, made on a thread."""

    def __init__(self, server: str, path: str, key: str, body: Any = None, **options: Any) -> None:
        self.answer: httpx.Response | None = None
        self.events: list[tuple[str, Any]] = []
        self.comments: list[str] = []
        self.headers: Any = {}
        self.status = 0
        self._error: Exception | None = None
        self._client = httpx.Client(trust_env=False, timeout=30)
        headers = {"Authorization": f"Bearer {key}", **options.pop("headers", {})}
        method = options.pop("method", "POST" if body is not None else "GET")
        self._request = self._client.build_request(
            method, f"http://{server}{path}", json=body, headers=headers, **options
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._client:
            self._ask()

    def _ask(self) -> None:
        response = None
        try:
            response = self._client.send(self._request, stream=True)
            self.status, self.headers = response.status_code, response.headers
            if not response.headers["content-type"].startswith("text/event-stream"):
                response.read()
                self.answer = response
                return
            for kind, data in _events(response.iter_lines(), self.comments):
                self.events.append((kind, data))
        except Exception as error:
            self._error = error
        finally:
            if response is not None:
                response.close()

    def ended(self, seconds: float = 15) -> "Call":
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "still running"
        if self._error:
            raise self._error
        return self

    @property
    def json(self) -> Any:
        assert self.answer is not None
        return self.answer.json()

    @property
    def data(self) -> list[Any]:
        return [data for _, data in self.events]

    def hang_up(self) -> None:
        """Close the connection under the request."""
        import socket

        for connection in self._client._transport._pool.connections:
            stream = connection._connection._network_stream
            stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


def _events(lines: Any, comments: list[str]) -> Any:
    kind = ""
    data: list[str] = []
    for line in lines:
        if line.startswith(":"):
            comments.append(line)
        elif line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            data.append(line.removeprefix("data: "))
        elif not line and data:
            text = "\n".join(data)
            yield kind, text if text == "[DONE]" else orjson.loads(text)
            kind, data = "", []
        else:
            assert not line, f"a line that the SDK does not expect: {line}"
