"""One attempt at a delivery: a signed POST to the address that was checked, within a total deadline. It takes
nothing from the answer but its status, when to come back, and a beginning to show. It knows no database.
"""

import asyncio
import contextlib
import re
import ssl
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import httpx
from ssrfguard import SSRFGuardError
from ssrfguard.httpx import AsyncSafeTransport

from app import clock
from app.webhooks import guard, signing
from app.webhooks.errors import UrlRefused
from app.webhooks.resolving import Resolver, look_up
from app.webhooks.schedule import parse_retry_after
from config.settings import settings

SNIPPET_BYTES: Final = 1024
BODY_SECONDS: Final = 2.0  # for the beginning of an answer's body; its status alone decides
CONNECT_SECONDS: Final = 5.0  # for each address of a name
MAX_ERROR_CHARS: Final = 300
GONE: Final = 410

# What a receiver may have echoed: secrets, signatures and credentials.
_SECRETS: Final = re.compile(
    r"wh(?:sec|sk)_\S+|\bv1a?,[A-Za-z0-9+/=]{16,}|\b(?:Bearer|Basic)\s+\S+"
    r"|(?<=password\":)\s*\"[^\"]*\"|(?<=secret\":)\s*\"[^\"]*\"|(?<=token\":)\s*\"[^\"]*\"",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Letter:
    """What is sent, and with which secrets it is signed."""

    url: str
    message_id: str
    body: str
    secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Without a `status_code` none came, and `error` says why; beside one it says why that is no success."""

    status_code: int | None
    error: str | None
    snippet: str = ""
    retry_after_seconds: float | None = None

    @property
    def is_gone(self) -> bool:
        return self.status_code == GONE


@dataclass(frozen=True, slots=True)
class Outcome:
    answer: Answer
    started_at: datetime
    duration_ms: int


class Unsigned(Exception):
    """No secret holds."""


class Sender:
    """Sends from one event loop. `resolver` is asked once an attempt."""

    def __init__(self, context: ssl.SSLContext | None = None, resolver: Resolver | None = None) -> None:
        self._context = context or httpx.create_ssl_context()
        self._resolver = (resolver,) if resolver else ()

    async def send(self, letter: Letter) -> Outcome:
        """Whatever the receiver or its network does is an outcome."""
        started_at, began = clock.now(), clock.monotonic()
        try:
            answer = await self._exchange(letter)
        except (OSError, UrlRefused, SSRFGuardError, httpx.TransportError, Unsigned) as error:
            answer = Answer(None, _reason(error))
        return Outcome(answer, started_at, round((clock.monotonic() - began) * 1000))

    async def _exchange(self, letter: Letter) -> Answer:
        async with asyncio.timeout(settings().webhook_timeout_seconds) as limit:
            async with await self._transport(letter.url) as transport:
                response = await transport.handle_async_request(_request(letter))
                # The status counts, however slowly the rest comes: that has a limit of its own.
                limit.reschedule(None)
                return await _read(response)

    async def _transport(self, url: str) -> AsyncSafeTransport:
        """One for this attempt alone: it has the addresses that were checked, and asks nobody again. Without a
        client around it there is no proxy, no cookie and no redirect.
        """
        destination = guard.find_destination(url, "url")
        answers = await asyncio.wrap_future(look_up(*destination.origin, *self._resolver))
        guard.require_public(destination, answers, "url")
        return AsyncSafeTransport(
            policy=destination.policy,
            resolver=lambda *_: answers,
            verify=self._context,
            trust_env=False,
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=0),
        )


def _request(letter: Letter) -> httpx.Request:
    if not letter.secrets:
        raise Unsigned
    body = letter.body.encode()
    headers = signing.headers(letter.message_id, body, letter.secrets, clock.now())
    headers |= {"accept-encoding": "identity", "connection": "close"}
    limits = {"connect": CONNECT_SECONDS, "read": None, "write": None, "pool": None}
    return httpx.Request("POST", letter.url, headers=headers, content=body, extensions={"timeout": limits})


async def _read(response: httpx.Response) -> Answer:
    taken = b""
    with contextlib.suppress(TimeoutError, httpx.TransportError):
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in response.aiter_raw():
                taken += chunk
                if len(taken) >= SNIPPET_BYTES:
                    break
    return Answer(
        response.status_code,
        _complaint(response.status_code),
        redact(taken[:SNIPPET_BYTES].decode(errors="replace")),
        parse_retry_after(response.headers.get("retry-after"), clock.now()),
    )


def redact(text: str) -> str:
    """What may be shown of an answer: printable, and without what looks secret."""
    printable = "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)
    return _SECRETS.sub("[redacted]", printable)


def _complaint(status: int) -> str | None:
    """Why a status is no success."""
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        return f"The receiver answered {status}; redirects are not followed."
    return f"The receiver answered {status}."


def _reason(error: Exception) -> str:
    match error:
        case UrlRefused():
            reason = str(error)
        case SSRFGuardError():
            reason = "The connection led to an address that is not public."
        case Unsigned():
            reason = "There is no secret to sign it with."
        case httpx.ConnectTimeout():
            reason = "No connection was made in time."
        case TimeoutError():
            reason = f"No answer within {settings().webhook_timeout_seconds:g} seconds."
        case httpx.TransportError():
            reason = f"The connection failed: {error or type(error).__name__}."
        case _:
            reason = "The host's name has no address."
    return reason[:MAX_ERROR_CHARS]
