"""Streamed chat completions of one server, ours or vLLM's own: how long the first token takes when nothing
else runs, and what comes of many at once. Each server gets the same requests, and its own count of tokens is
taken. It knows nothing of how a server was started.
"""

import asyncio
import time
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from bench.clients import Client, Heard, connected

CONCURRENT: Final = 32
WARM_UP: Final = 5


@dataclass(frozen=True, slots=True)
class Load:
    """`idle` chats of `idle_tokens` one after another; then, `rounds` times, `jobs` chats of `tokens`, some at
    once.
    """

    idle: int
    jobs: int
    tokens: int
    rounds: int
    idle_tokens: int = 4


@dataclass(slots=True)
class Side:
    """What one server did; times in seconds, rates in tokens a second, a round each."""

    idle: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    output_tokens: int = 0

    @property
    def rate(self) -> float:
        return median(self.rates)


async def run(url: str, key: str, model: str, load: Load) -> Side:
    side = Side()
    async with connected(url, key) as client:
        chats = _Chats(client, model)
        await chats.at_once(CONCURRENT, 8)
        for number in range(WARM_UP + load.idle):
            seconds, _ = await chats.one(load.idle_tokens)
            if number >= WARM_UP:
                side.idle.append(seconds)
        for _ in range(load.rounds):
            began = time.monotonic()
            found = await chats.at_once(load.jobs, load.tokens)
            tokens = sum(heard.output_tokens for _, heard in found)
            side.rates.append(tokens / (time.monotonic() - began))
            side.busy += [seconds for seconds, _ in found]
            side.output_tokens += tokens
            side.prompt_tokens += sum(heard.prompt_tokens for _, heard in found)
    return side


class _Chats:
    """The same for each server. No prompt begins like an earlier one, whose prefix is cached."""

    def __init__(self, client: Client, model: str) -> None:
        self._client = client
        self._model = model
        self._number = 0

    async def one(self, tokens: int) -> tuple[float, Heard]:
        """Seconds to the first token, and what came to the end."""
        self._number += 1
        asked = f"{self._number}: write a long story about the sea, its ships and those who sail them."
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": "user", "content": asked}],
            "max_tokens": tokens,
            "temperature": 0,
        }
        began = time.monotonic()
        heard = await self._client.chat(body)
        return heard.first_token_at - began, heard

    async def at_once(self, jobs: int, tokens: int) -> list[tuple[float, Heard]]:
        gate = asyncio.Semaphore(CONCURRENT)

        async def next_one() -> tuple[float, Heard]:
            async with gate:
                return await self.one(tokens)

        return await asyncio.gather(*(next_one() for _ in range(jobs)))
