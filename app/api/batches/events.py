"""`/v1/batches/{id}/events`: a batch's log as JSON pages, or as server-sent events that follow it to its end.

Batches have few followers and few events, so each follower looks into Postgres once a second.
"""

from collections.abc import Iterator
from typing import Any, Final, Literal

from flask import Response, jsonify
from pydantic import BaseModel, ConfigDict, Field

from app import clock
from app.api import draining, following, server_sent
from app.api.auth import account_id, key_hash, protected
from app.api.batches.shapes import BatchCounts
from app.api.bodies import parse_query
from app.api.describe import describe
from app.api.events import EventsQuery
from app.batches import queries
from app.batches.errors import BatchNotFound
from app.batches.states import PROGRESS, TERMINAL_BATCHES, BatchStatus
from app.batches.tables import BatchEvent
from app.db import transaction
from app.streams import frames
from app.streams.frames import Frame
from config.settings import settings

blueprint = protected("batch_events")

EVENT_TYPES: Final = (*(status.event_type for status in BatchStatus), PROGRESS)
TERMINAL_TYPES: Final = frozenset(status.event_type for status in TERMINAL_BATCHES)
PAGE_ROWS: Final = 500


class BatchProgress(BaseModel):
    """One entry of a batch's log; over SSE and WebSocket, too."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(json_schema_extra={"enum": [*EVENT_TYPES]})
    seq: int = Field(description="Go on after this one.")
    batch_id: str
    at: str
    status: BatchStatus | None = Field(None, description="Of all but `batch.progress`.")
    request_counts: BatchCounts | None = None
    running: int | None = None
    lines_per_second: float | None = None
    tokens_per_second: float | None = None
    estimated_finish_at: int | None = Field(None, description="Unix seconds.")


class BatchEventPage(BaseModel):
    object: Literal["list"] = "list"
    data: list[BatchProgress]
    next_after: int = Field(description="`after` of the next page.")
    has_more: bool = Field(description="Whether the log goes on: false once the terminal event was given.")


@blueprint.get("/v1/batches/<batch_id>/events")
@describe(
    "Read or follow a batch's log",
    query=EventsQuery,
    headers=(("Last-Event-ID", "With `Accept: text/event-stream`: as `after`, and sent by browsers."),),
    answers={
        200: (BatchEventPage, "A page; as `text/event-stream`, every event to the terminal one."),
        204: (None, "With `Accept: text/event-stream`: nothing follows the cursor. Browsers then stop asking."),
    },
    errors=(400, 401, 404, 503),
    media_types=("application/json", server_sent.MEDIA_TYPE),
)
def show(batch_id: str) -> Response:
    with transaction() as session:
        queries.get_batch(session, account_id(), batch_id)
    if not server_sent.is_wanted():
        return _page(batch_id, parse_query(EventsQuery))
    after = server_sent.position()
    if _is_over(batch_id, after):
        return Response(status=204)
    return server_sent.answer(batch_id, follow(batch_id, after, key_hash()))


def _page(batch_id: str, query: EventsQuery) -> Response:
    found: list[BatchEvent] = []
    for found in _looks(batch_id, query):
        if found:
            break
    after = found[-1].seq if found else query.after
    is_over = found[-1].type in TERMINAL_TYPES if found else _is_over(batch_id, after)
    return jsonify(
        object="list", data=[_fields(event) for event in found], next_after=after, has_more=not is_over
    )


def _looks(batch_id: str, query: EventsQuery) -> Iterator[list[BatchEvent]]:
    """What the log has after the cursor, again and again for as long as the client waits."""
    deadline = clock.monotonic() + (query.wait or 0)
    while True:
        yield _read(batch_id, query.after, query.limit)
        left_seconds = deadline - clock.monotonic()
        if left_seconds <= 0 or draining.has_begun() or _is_over(batch_id, query.after):
            return
        clock.sleep(min(following.TICK_SECONDS, left_seconds))


def _read(batch_id: str, after: int, limit: int = PAGE_ROWS) -> list[BatchEvent]:
    with transaction() as session:
        return queries.read_events(session, batch_id, after, limit)


def _is_over(batch_id: str, after: int) -> bool:
    """Whether the batch has ended and nothing follows. Raises `BatchNotFound`."""
    with transaction() as session:
        # The status first: once it is terminal, the log that is read after it is complete.
        batch = queries.find_batch(session, batch_id)
        if batch is None:
            raise BatchNotFound(batch_id)
        return batch.status.is_terminal and queries.last_seq(session, batch_id) <= after


def follow(batch_id: str, after: int, key: bytes) -> Iterator[list[Frame]]:
    """Events after a cursor as they come, ending with the terminal one, with an empty list at least every
    second. Ends early when this server stops. Raises `BatchNotFound`, and `KeyMissing` when the key is revoked.
    """
    with following.place():
        checked_at = clock.monotonic()
        for found in following.steadily(batch_id, after, _follow):
            yield found
            if draining.has_begun():
                return
            if clock.monotonic() - checked_at >= settings().ping_seconds:
                checked_at = clock.monotonic()
                following.require_valid(key)


def _follow(batch_id: str, after: int) -> Iterator[list[Frame]]:
    while True:
        found = [_frame(event) for event in _read(batch_id, after)]
        yield found
        if found:
            after = found[-1].seq
        if _ends(found) or (not found and _is_over(batch_id, after)):
            return
        if len(found) < PAGE_ROWS:
            clock.sleep(following.TICK_SECONDS)


def _ends(found: list[Frame]) -> bool:
    return bool(found) and found[-1].type in TERMINAL_TYPES


def _frame(event: BatchEvent) -> Frame:
    fields = _fields(event)
    return Frame(event.seq, event.seq, event.type, frames.to_json(fields))


def _fields(event: BatchEvent) -> dict[str, Any]:
    """As `BatchProgress`."""
    status = {} if event.type == PROGRESS else {"status": event.type.removeprefix("batch.")}
    at = event.created_at.isoformat().replace("+00:00", "Z")
    known = {"type": event.type, "seq": event.seq, "batch_id": event.batch_id, "at": at}
    return {**known, **status, **event.data}
