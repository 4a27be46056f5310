"""`/v1/messages/batches`: Anthropic's Message Batches, in its shapes and with its errors. The requests of a
body pass through one by one, whatever its size.
"""

from collections.abc import Iterator
from typing import Annotated, Final

import orjson
from flask import Response, jsonify, request
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session
from werkzeug.exceptions import RequestEntityTooLarge

from app import clock
from app.anthropic.errors import envelope, type_of
from app.anthropic.ids import batch_id_of
from app.anthropic.members import Members
from app.api.auth import account_id, caller, protected
from app.api.batches.message_views import (
    CreateMessageBatch,
    MessageBatchDeleted,
    MessageBatchList,
    MessageBatchView,
    view,
)
from app.api.bodies import parse_query
from app.api.describe import describe
from app.api.errors import BodyInvalid
from app.api.request_ids import request_id
from app.api.submitting import idempotency_key
from app.batches import cancelling, message_results, messages
from app.batches.tables import Batch
from app.db import transaction
from app.files import shelf
from app.files.spool import Spool
from app.files.storage import storage
from config.settings import settings

blueprint = protected("message_batches")

URL: Final = "/v1/messages/batches"
CHUNK_BYTES: Final = 1 << 16


class MessageBatchesQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    after_id: str | None = Field(None, description="The last id of the page before.")
    before_id: str | None = Field(None, description="The first id of the page after.")
    limit: Annotated[int, Field(ge=1, le=1_000)] = 20


@blueprint.after_request
def _in_anthropics_words(response: Response) -> Response:
    response.headers["request-id"] = request_id()
    if response.status_code >= 400:
        message: str = response.get_json()["error"]["message"]
        response.set_data(orjson.dumps(envelope(type_of(response.status_code), message, request_id())))
    return response


@blueprint.post(URL)
@describe(
    "Create a message batch",
    body=CreateMessageBatch,
    headers=(("Idempotency-Key", "The same key and requests give the same batch, running or done."),),
    answers={200: (MessageBatchView, "The batch. What its requests ask for is checked next, one by one.")},
    errors=(400, 401, 403, 409, 413),
)
def create() -> Response:
    key = idempotency_key()
    limits = settings()
    with Spool(limits.max_batch_bytes) as spool:
        count = 0
        for line in messages.lines(Members(_chunks(limits.max_message_batch_bytes), limits.max_line_bytes)):
            spool.write(line)
            count += 1
        digest = spool.finish()
        with transaction() as session:
            shelf.begin(session, digest, spool.bytes)
        storage().put(digest, spool.path)
        with transaction() as session:
            batch, is_new = messages.create(session, caller(), key, digest, spool.bytes, count)
            response = _shown(session, batch)
    if not is_new:
        response.headers["Idempotency-Replayed"] = "true"
    return response


def _chunks(limit: int) -> Iterator[bytes]:
    """The body. Raises `RequestEntityTooLarge`."""
    # Werkzeug cuts a body without a length at the limit, without a word.
    request.max_content_length = limit + 1
    size = 0
    while chunk := request.stream.read(CHUNK_BYTES):
        size += len(chunk)
        if size > limit:
            raise RequestEntityTooLarge
        # A client that is faster than we are would keep us from ever waiting: others' requests come between.
        clock.sleep(0)
        yield chunk


@blueprint.get(URL)
@describe(
    "List message batches",
    query=MessageBatchesQuery,
    answers={200: (MessageBatchList, "A page, newest first.")},
    errors=(400, 401, 404),
)
def index() -> Response:
    page = parse_query(MessageBatchesQuery)
    if page.after_id is not None and page.before_id is not None:
        raise BodyInvalid("Give 'after_id' or 'before_id', not both.", "before_id")
    with transaction() as session:
        after, before = (
            _own(session, given).id if given else None for given in (page.after_id, page.before_id)
        )
        found, has_more = messages.list_batches(
            session, account_id(), after=after, before=before, limit=page.limit
        )
        tallies = messages.tally(session, found)
        shown = [view(batch, tallies[batch.id], _root()) for batch in found]
    return jsonify(
        data=shown,
        has_more=has_more,
        first_id=shown[0]["id"] if shown else None,
        last_id=shown[-1]["id"] if shown else None,
    )


@blueprint.get(f"{URL}/<message_batch_id>")
@describe("Show a message batch", answers={200: (MessageBatchView, "As it stands now.")}, errors=(401, 404))
def show(message_batch_id: str) -> Response:
    with transaction() as session:
        return _shown(session, _own(session, message_batch_id))


@blueprint.post(f"{URL}/<message_batch_id>/cancel")
@describe(
    "Cancel a message batch",
    answers={
        200: (MessageBatchView, "The batch: what runs is stopped. As it was, if it had ended already."),
    },
    errors=(401, 404),
)
def cancel(message_batch_id: str) -> Response:
    with transaction() as session:
        return _shown(session, cancelling.request(session, _own(session, message_batch_id)))


@blueprint.delete(f"{URL}/<message_batch_id>")
@describe(
    "Delete a message batch",
    answers={200: (MessageBatchDeleted, "It is gone, and so are its results.")},
    errors=(401, 404, 409),
)
def delete(message_batch_id: str) -> Response:
    with transaction() as session:
        batch = _own(session, message_batch_id)
    messages.require_ended(batch)
    erased = 1
    while erased:
        with transaction() as session:
            erased = messages.erase_some_lines(session, batch)
    with transaction() as session:
        messages.erase(session, _own(session, message_batch_id))
    return jsonify(id=message_batch_id, type="message_batch_deleted")


@blueprint.get(f"{URL}/<message_batch_id>/results")
@describe(
    "Read the results of a message batch",
    answers={200: (None, "A line for each request, in their order.")},
    errors=(401, 404, 409),
    media_types=("application/x-jsonl",),
)
def results(message_batch_id: str) -> Response:
    with transaction() as session:
        batch = _own(session, message_batch_id)
    messages.require_results(batch)
    return Response(message_results.lines(batch), mimetype="application/x-jsonl")


def _own(session: Session, public_id: str) -> Batch:
    return messages.get_batch(session, account_id(), batch_id_of(public_id))


def _shown(session: Session, batch: Batch) -> Response:
    return jsonify(view(batch, messages.tally(session, [batch])[batch.id], _root()))


def _root() -> str:
    return f"{settings().url or request.host_url.rstrip('/')}{URL}"
