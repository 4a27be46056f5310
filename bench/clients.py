"""A client of the API that is fast enough to load it: submit over HTTP, follow on a WebSocket, or stream a chat
completion, of any OpenAI server. It checks what every follower may rely on (each sequence number once, in
order; an end) and knows nothing of what is measured.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import orjson

LAST_EVENTS: Final = frozenset(
    {"job.completed", "job.incomplete", "job.failed", "job.cancelled", "job.expired"}
)
_DATA: Final = b"data: "
_DONE: Final = b"data: [DONE]"


class StreamBroken(Exception):
    """A follower saw a hole, a repeat or an error, or the stream ended before its job did."""


@dataclass(slots=True)
class Seen:
    """What a follower saw of a job; times are `time.monotonic`."""

    cursor: int = 0
    first_delta_at: float = 0.0
    last_delta_at: float = 0.0
    ended_at: float = 0.0
    output_tokens: int = 0
    status: str = ""

    def take(self, frame: dict[str, Any], at: float) -> None:
        if frame["type"] == "queue.moved":  # not of the log
            return
        first_seq = frame.get("first_seq", frame["seq"])
        if first_seq != self.cursor + 1:
            raise StreamBroken(f"{first_seq} came after {self.cursor}")
        self.cursor = frame["seq"]
        if frame["type"] == "output.delta":
            self.first_delta_at = self.first_delta_at or at
            self.last_delta_at = at
        elif frame["type"] in LAST_EVENTS:
            self.ended_at, self.status = at, frame["status"]
            self.output_tokens = frame["usage"]["output_tokens"]


@dataclass(slots=True)
class Heard:
    """What came of a streamed chat completion; times are `time.monotonic`, tokens as the server counts them."""

    first_token_at: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0

    def take(self, chunk: dict[str, Any], at: float) -> None:
        if "error" in chunk:
            raise StreamBroken(str(chunk["error"]))
        # A server may name the role, with empty content, before there is a token.
        if not self.first_token_at and any(choice["delta"].get("content") for choice in chunk["choices"]):
            self.first_token_at = at
        if usage := chunk.get("usage"):
            self.prompt_tokens, self.output_tokens = usage["prompt_tokens"], usage["completion_tokens"]


class Client:
    """On one event loop; `session` keeps its connections."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self.session = session

    async def submit(self, body: dict[str, Any]) -> str:
        """The id of a new job. Raises `aiohttp.ClientError` where it is refused."""
        async with self.session.post(
            f"{self.url}/v1/jobs", data=orjson.dumps(body), headers={"Content-Type": "application/json"}
        ) as answer:
            content = await answer.read()
            answer.raise_for_status()
        job_id: str = orjson.loads(content)["id"]
        return job_id

    async def ping(self) -> None:
        """The cheapest request there is."""
        async with self.session.get(f"{self.url}/livez") as answer:
            await answer.read()
            answer.raise_for_status()

    async def follow(self, job_id: str) -> Seen:
        """To the end of the job. Raises `StreamBroken`."""
        seen = Seen()
        async for frame, at in self.frames(job_id):
            seen.take(frame, at)
        if not seen.status:
            raise StreamBroken(f"the stream of {job_id} ended after {seen.cursor}, before the job did")
        return seen

    async def chat(self, body: dict[str, Any]) -> Heard:
        """To the end of the stream. Raises `aiohttp.ClientError` where it is refused, `StreamBroken`."""
        heard, is_over = Heard(), False
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        async with self.session.post(f"{self.url}/v1/chat/completions", json=asked) as answer:
            answer.raise_for_status()
            async for line in answer.content:
                if line.startswith(_DATA):
                    is_over = line.startswith(_DONE)
                    if not is_over:
                        heard.take(orjson.loads(line[len(_DATA) :]), time.monotonic())
        if not (is_over and heard.first_token_at and heard.output_tokens):
            raise StreamBroken(f"a chat ended as {heard}")
        return heard

    async def frames(self, job_id: str) -> AsyncIterator[tuple[dict[str, Any], float]]:
        """Each frame with the time at which it came."""
        async with self.session.ws_connect(f"{self.url}/v1/jobs/{job_id}/stream", compress=0) as socket:
            async for message in socket:
                yield orjson.loads(message.data), time.monotonic()


@asynccontextmanager
async def connected(url: str, key: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {key}"}
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=60)
    async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout) as session:
        yield Client(url, session)
