"""All that a client of OpenAI's was answered, byte by byte, for the contract to be checked on it. It knows
nothing of what the bytes mean.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2

from tests.openai_contract import Exchange, faults_of


class Recorder:
    """`exchanges` are those that are over; a stream is over when the client closed it."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def client(self) -> httpx2.Client:
        return httpx2.Client(transport=_Transport(self), timeout=60, trust_env=False)

    def async_client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=_AsyncTransport(self), timeout=60, trust_env=False)

    def take(self, request: httpx2.Request, response: httpx2.Response, body: bytes, *, cut: bool) -> None:
        content_type = response.headers.get("content-type", "")
        self.exchanges.append(
            Exchange(request.method, request.url.path, response.status_code, content_type, body, cut)
        )

    def check(self) -> None:
        faults = [fault for exchange in self.exchanges for fault in faults_of(exchange)]
        assert not faults, "\n".join(dict.fromkeys(faults))

    @property
    def last(self) -> Exchange:
        return self.exchanges[-1]


class _Tee(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __init__(self, recorder: Recorder, request: httpx2.Request, response: httpx2.Response) -> None:
        self._recorder, self._request, self._response = recorder, request, response
        self._stream: Any = response.stream
        self._seen: list[bytes] = []
        self._is_whole = self._is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            self._seen.append(chunk)
            yield chunk
        self._is_whole = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._seen.append(chunk)
            yield chunk
        self._is_whole = True

    def close(self) -> None:
        self._stream.close()
        self._end()

    async def aclose(self) -> None:
        await self._stream.aclose()
        self._end()

    def _end(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._recorder.take(self._request, self._response, b"".join(self._seen), cut=not self._is_whole)


class _Transport(httpx2.HTTPTransport):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        response = super().handle_request(request)
        response.stream = _Tee(self._recorder, request, response)
        return response


class _AsyncTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        response.stream = _Tee(self._recorder, request, response)
        return response
