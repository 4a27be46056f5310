"""Whether this web process is about to end. Streams look at it every second and send clients elsewhere."""

import signal
from types import FrameType

_state = {"draining": False}


def begin() -> None:
    _state["draining"] = True


def has_begun() -> bool:
    return _state["draining"]


def begin_on_signals() -> None:
    """Begin when the server is told to stop, then let the server's own handler run."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        _chain(number)


def _chain(number: signal.Signals) -> None:
    server_handler = signal.getsignal(number)

    def handle(received: int, frame: FrameType | None) -> None:
        begin()
        if callable(server_handler):
            server_handler(received, frame)

    if callable(server_handler):
        signal.signal(number, handle)
