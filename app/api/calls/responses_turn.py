"""One turn of a conversation of responses: the body of a request in, the events of its response out."""

from collections import deque
from collections.abc import Generator
from contextlib import closing
from typing import Any, ClassVar, Final, Literal

from flask import g

from app import clock
from app.api import auth, following
from app.api.bodies import parse_body
from app.api.calls import responses
from app.api.calls.calling import Call
from app.api.calls.lanes import Lanes
from app.api.errors import KeyMissing, NotServed
from app.jobs.errors import JobNotFound
from app.openai.extras import Harmless
from app.openai.responses.body import CreateResponse
from app.openai.responses.events import Event, Projector
from config.settings import settings

# Responses that are not stored, and that later turns of the same conversation may still follow.
MAX_OWN: Final = 64

Events = Generator[list[Event]]


class CreateEvent(CreateResponse):
    """A response is always streamed here, and never in the background."""

    UNSUPPORTED: ClassVar[Harmless] = {
        **CreateResponse.UNSUPPORTED,
        "background": (False,),
        "generate": (True,),
        "stream": (True,),
    }

    type: Literal["response.create"]
    stream_id: str | None = None
    stream: bool = True


class Turns:
    """Of one conversation. Where the server ends it, `keeps_stored`: what can be found again goes on."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._own: deque[str] = deque(maxlen=MAX_OWN)
        self.keeps_stored = False

    def events(self) -> Events:
        """Those of the response that this request creates, empty lists where nothing came. Raises what
        `app.api.errors` has an answer for.
        """
        body = parse_body(CreateEvent)
        g.own_jobs = tuple(self._own)
        call, projector = responses.begin(body)
        with closing(call), following.place():
            if not body.store:
                self._own.append(call.jobs[0].id)
            yield from self._told(call, projector)

    def _told(self, call: Call, projector: Projector) -> Events:
        checked_at = clock.monotonic()
        try:
            for _, batch in call.follow():
                if self._lanes.is_over:
                    break
                yield [_nested(event) for frame in batch for event in projector.feed(frame)]
                if projector.is_over:
                    break
                if clock.monotonic() - checked_at >= settings().ping_seconds:
                    checked_at = clock.monotonic()
                    following.require_valid(auth.key_hash())
        except (JobNotFound, KeyMissing, NotServed) as error:
            yield [_nested(projector.broken(error.code, str(error)))]
            return
        if projector.is_over or self.keeps_stored:
            call.give_up()


def _nested(event: Event) -> Event:
    """An error over a WebSocket has its details one level further in."""
    if event["type"] != "error":
        return event
    details: dict[str, Any] = {name: event[name] for name in ("code", "message", "param")}
    return {
        "type": "error",
        "error": {"type": "server_error", **details},
        "sequence_number": event["sequence_number"],
    }
