"""`/v1/jobs/{id}/events`: a job's log as JSON pages, or as server-sent events that follow it to its end."""

import socket
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import structlog
from flask import Response, request
from pydantic import BaseModel, Field

from app import clock
from app.api import draining, waiting
from app.api.auth import account_id, protected
from app.api.bodies import parse, parse_query
from app.api.describe import describe
from app.api.errors import TooManyFollowers
from app.db import transaction
from app.jobs.errors import JobNotFound
from app.jobs.queries import get_job
from app.streams import channel
from app.streams.frames import Frame
from app.streams.hub import hub
from config.settings import settings

log = structlog.get_logger(__name__)

blueprint = protected("events")

TICK_SECONDS = 1.0


class EventsQuery(BaseModel):
    after: int = Field(0, ge=0, le=2**62, description="The last sequence number that you have.")
    limit: Annotated[int, Field(ge=1, le=1000)] = 500
    wait: float | None = Field(None, ge=0, le=settings().max_wait_seconds, description="Long-poll, seconds.")


class EventPage(BaseModel):
    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    next_after: int = Field(description="`after` of the next page.")
    has_more: bool = Field(description="Whether the log goes on: true until the terminal event is in `data`.")


@blueprint.get("/v1/jobs/<job_id>/events")
@describe(
    "Read or follow a job's log",
    query=EventsQuery,
    headers=(("Last-Event-ID", "With `Accept: text/event-stream`: as `after`, and sent by browsers."),),
    answers={200: (EventPage, "A page; as `text/event-stream`, every event to the terminal one.")},
    errors=(400, 401, 404, 503),
    media_types=("application/json", "text/event-stream"),
)
def show(job_id: str) -> Response:
    with transaction() as session:
        get_job(session, account_id(), job_id)
    if request.accept_mimetypes.best_match(["application/json", "text/event-stream"]) == "text/event-stream":
        return _stream(job_id, _cursor())
    return _page(job_id, parse_query(EventsQuery))


def _cursor() -> int:
    """`Last-Event-ID` wins: a browser repeats the URL, `after` included, when it connects again."""
    last = request.headers.get("Last-Event-ID")
    values = {"after": last} if last else {"after": request.args.get("after", "0")}
    return parse(EventsQuery, values).after


def _page(job_id: str, query: EventsQuery) -> Response:
    page = channel.read_page(job_id, query.after, query.limit)
    if not page and query.wait:
        waiting.until_more(job_id, query.after, query.wait)
        page = channel.read_page(job_id, query.after, query.limit)
    page = page[: query.limit]
    body = b'{"object":"list","data":[%s],"next_after":%d,"has_more":%s}' % (
        b",".join(frame.body for frame in page),
        page[-1].seq if page else query.after,
        b"true" if not page or not page[-1].is_last else b"false",
    )
    return Response(body, mimetype="application/json")


def _stream(job_id: str, after: int) -> Response:
    if hub().followers >= settings().max_followers:
        raise TooManyFollowers("This server follows as many streams as it may; try again or try another.")
    response = Response(_server_sent(job_id, after), mimetype="text/event-stream")
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    # The socket gets a write deadline, which the next request on it should not inherit.
    response.headers["Connection"] = "close"
    _limit_writes()
    return response


def _limit_writes() -> None:
    """A reader that takes nothing for this long is dropped: it may not hold a greenlet for ever."""
    connection: socket.socket | None = request.environ.get("gunicorn.socket")
    if connection is not None:
        connection.settimeout(settings().write_timeout_seconds)


def _server_sent(job_id: str, after: int) -> Iterator[bytes]:
    quiet_since = clock.monotonic()
    yield b": following\n\n"
    try:
        for batch in channel.follow(job_id, after, tick_seconds=TICK_SECONDS):
            if batch:
                yield b"".join(map(_event, batch))
                quiet_since = clock.monotonic()
            elif clock.monotonic() - quiet_since >= settings().ping_seconds:
                yield b": ping\n\n"
                quiet_since = clock.monotonic()
            if draining.has_begun():
                yield b": this server stops; connect again\n\n"
                return
    except JobNotFound:
        log.info("stream.job_deleted", job_id=job_id)


def _event(frame: Frame) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (frame.seq, frame.type.encode(), frame.body)
