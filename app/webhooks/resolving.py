"""Asking the name service, which has no deadline of its own: whoever waits may stop waiting at any time. It
knows nothing of what is allowed.
"""

import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

from cachetools import TTLCache

from app import clock

LOOKUP_SECONDS: Final = 2.0
REMEMBERED_SECONDS: Final = 60.0
# A process waits this long in a minute, all in all, for names that nobody answers for: a batch whose lines name
# thousands of them is not to take days.
PATIENCE_SECONDS: Final = 20.0

Answers = Sequence[tuple[Any, ...]]  # as of `socket.getaddrinfo`
Resolver = Callable[..., Answers]


def look_up(host: str, port: int, resolver: Resolver = socket.getaddrinfo) -> Future[Answers]:
    """The addresses of a name, or `OSError` where it has none. An address as text is its own answer."""
    future: Future[Answers] = Future()
    future.set_running_or_notify_cancel()
    # A thread of its own, since none can be taken back from a name server that does not answer.
    threading.Thread(target=_answer, args=(future, resolver, host, port), name="lookup", daemon=True).start()
    return future


def _answer(future: Future[Answers], resolver: Resolver, host: str, port: int) -> None:
    try:
        future.set_result(resolver(host, port, 0, socket.SOCK_STREAM))
    except OSError as error:
        future.set_exception(error)
    except UnicodeError as error:
        future.set_exception(socket.gaierror(str(error)))


class Names:
    """What names resolved to within the last minute; safe from any thread."""

    def __init__(self, resolver: Resolver = socket.getaddrinfo) -> None:
        self._resolver = resolver
        self._lock = threading.Lock()
        self._known: TTLCache[tuple[str, int], Answers] = TTLCache(4096, REMEMBERED_SECONDS, clock.monotonic)
        self._since, self._waited = clock.monotonic(), 0.0

    def find(self, host: str, port: int) -> Answers:
        """Its addresses; none where it does not resolve soon, or where too long was waited for others."""
        with self._lock:
            known = self._known.get((host, port))
            seconds = self._patience()
        if known is not None:
            return known
        return self._ask(host, port, seconds) if seconds > 0 else ()

    def _patience(self) -> float:
        if clock.monotonic() - self._since > REMEMBERED_SECONDS:
            self._since, self._waited = clock.monotonic(), 0.0
        return min(LOOKUP_SECONDS, PATIENCE_SECONDS - self._waited)

    def _ask(self, host: str, port: int, seconds: float) -> Answers:
        began = clock.monotonic()
        try:
            answers = look_up(host, port, self._resolver).result(seconds)
        except (OSError, TimeoutError):
            answers = ()
        with self._lock:
            self._known[host, port] = answers
            self._waited += clock.monotonic() - began
        return answers
