"""`/v1/jobs/{id}/events`: a job's log as JSON pages, or as server-sent events that follow it to its end."""

from typing import Annotated, Any, Final, Literal

import orjson
from flask import Response
from pydantic import BaseModel, ConfigDict, Field

from app.api import following, notices, server_sent, views, waiting
from app.api.auth import account_id, key_hash, protected
from app.api.bodies import parse_query
from app.api.describe import describe
from app.db import transaction
from app.jobs.log import REWIND, last_seq
from app.jobs.queries import get_job
from app.jobs.states import Status
from app.streams import channel
from app.streams.frames import DELTA
from config.settings import settings

blueprint = protected("events")

EVENT_TYPES: Final = (*(status.event_type for status in Status), DELTA, REWIND)


class EventsQuery(BaseModel):
    after: following.Cursor = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 500
    wait: float | None = Field(None, ge=0, le=settings().max_wait_seconds, description="Long-poll, seconds.")


class Event(BaseModel):
    """One entry of a job's log; over SSE and WebSocket, too. `job.*` events carry `status` and, at the end,
    `usage`, `error` and `incomplete_details`; output carries `offset`, in characters, and `delta`.
    """

    model_config = ConfigDict(extra="allow")

    type: str = Field(json_schema_extra={"enum": [*EVENT_TYPES]})
    seq: int = Field(description="Go on after this one.")
    first_seq: int | None = Field(None, description="Where the event covers more than `seq`: from here.")
    job_id: str | None = None
    at: str | None = None
    status: Status | None = None
    offset: int | None = Field(
        None, description="Where `delta` starts in the output; what follows a rewind replaces all from here on."
    )
    delta: str | None = None
    logprobs: list[dict[str, Any]] | None = None
    parts: list[dict[str, Any]] | None = Field(
        None,
        description="`delta` taken apart, where there are tools or the model reasons: `text`, `reasoning` and"
        " `tool_call` parts; a call has its `id` and `name` once, then pieces of `arguments`.",
    )


class EventPage(BaseModel):
    object: Literal["list"] = "list"
    data: list[Event]
    next_after: int = Field(description="`after` of the next page.")
    has_more: bool = Field(description="Whether the log goes on: false once the terminal event was given.")
    queue: views.QueuePlace | None = Field(
        description="Where the job stands, in a page after which it waits; null where that is not known."
    )


@blueprint.get("/v1/jobs/<job_id>/events")
@describe(
    "Read or follow a job's log",
    query=EventsQuery,
    headers=(("Last-Event-ID", "With `Accept: text/event-stream`: as `after`, and sent by browsers."),),
    answers={
        200: (EventPage, "A page; as `text/event-stream`, every event to the terminal one." + notices.MEANING),
        204: (None, "With `Accept: text/event-stream`: nothing follows the cursor. Browsers then stop asking."),
    },
    errors=(400, 401, 404, 503),
    media_types=("application/json", "text/event-stream"),
)
def show(job_id: str) -> Response:
    if server_sent.is_wanted():
        return _stream(job_id, server_sent.position())
    return _page(job_id, parse_query(EventsQuery))


def _look(job_id: str, after: int) -> tuple[Status, bool]:
    """The job's status, and whether nothing can follow `after`. Raises `JobNotFound`."""
    with transaction() as session:
        job = get_job(session, account_id(), job_id)
        return job.status, job.status.is_terminal and last_seq(session, job_id) <= after


def _page(job_id: str, query: EventsQuery) -> Response:
    status, is_over = _look(job_id, query.after)
    page = [] if is_over else channel.read_page(job_id, query.after, query.limit).frames
    if not page and query.wait and not is_over:
        waiting.until_more(job_id, query.after, query.wait)
        page = channel.read_page(job_id, query.after, query.limit).frames
    page = page[: query.limit]
    is_over = is_over or bool(page and page[-1].is_last)
    after = page[-1].seq if page else query.after
    waits = (page[-1].type if page else status.event_type) == Status.QUEUED.event_type
    body = b'{"object":"list","data":[%s],"next_after":%d,"has_more":%s,"queue":%s}' % (
        b",".join(frame.body for frame in page),
        after,
        b"false" if is_over else b"true",
        orjson.dumps(notices.find_queue(job_id, after) if waits else None),
    )
    return Response(body, mimetype="application/json")


def _stream(job_id: str, after: int) -> Response:
    if _look(job_id, after)[1]:
        return Response(status=204)
    return server_sent.answer(job_id, following.batches(job_id, after, key_hash()))
