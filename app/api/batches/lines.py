"""A batch's lines: listed, cancelled one by one, and read as the files of output and errors, also before there
are such files.
"""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from flask import Response, jsonify
from pydantic import BaseModel, ConfigDict, Field

from app.api import ending
from app.api.auth import account_id, protected
from app.api.batches import shapes, views
from app.api.bodies import parse_query
from app.api.describe import describe
from app.batches import queries, results
from app.batches.errors import LineNotFound
from app.batches.queries import Line
from app.batches.tables import Batch
from app.db import transaction
from app.files import shelf
from app.files.errors import FileNotFound
from app.files.storage import storage
from app.jobs.states import Status
from app.jobs.tables import Job

blueprint = protected("batch_lines")

MEDIA_TYPE: Final = "application/jsonl"
CHUNK_BYTES: Final = 65_536
MAX_LINE: Final = 2**31 - 1


class LinesQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    after: Annotated[int, Field(ge=0, le=MAX_LINE, description="The last line of the page before.")] = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    status: Status | Literal["invalid"] | None = None


@blueprint.get("/v1/batches/<batch_id>/lines")
@describe(
    "List a batch's lines",
    query=LinesQuery,
    answers={200: (shapes.BatchLineList, "A page, in the order of the input.")},
    errors=(400, 401, 404),
)
def index(batch_id: str) -> Response:
    page = parse_query(LinesQuery)
    with transaction() as session:
        queries.get_batch(session, account_id(), batch_id)
        found = queries.list_lines(
            session, batch_id, after=page.after, limit=page.limit + 1, status=page.status
        )
    shown = [views.line(one) for one in found[: page.limit]]
    return jsonify(
        object="list",
        data=shown,
        next_after=shown[-1]["line"] if shown else page.after,
        has_more=len(found) > page.limit,
    )


@blueprint.post("/v1/batches/<batch_id>/lines/<line>/cancel")
@describe(
    "Cancel one line of a batch",
    answers={200: (shapes.BatchLineView, "The line; as it was, if it had ended already.")},
    errors=(401, 404),
)
def cancel(batch_id: str, line: str) -> Response:
    found = _line(batch_id, line)
    if isinstance(found, Job) and not found.status.is_terminal:
        ending.cancel(found.id)
        found = _line(batch_id, line)
    return jsonify(views.line(found))


def _line(batch_id: str, number: str) -> Line:
    """Raises `BatchNotFound`, `LineNotFound`."""
    with transaction() as session:
        queries.get_batch(session, account_id(), batch_id)
        if not (number.isascii() and number.isdigit() and 0 < int(number[:11]) <= MAX_LINE):
            raise LineNotFound(batch_id, number)
        return queries.get_line(session, batch_id, int(number))


@blueprint.get("/v1/batches/<batch_id>/output")
@describe(
    "Read a batch's output file",
    answers={200: (None, "JSONL, by line: those that have an answer so far.")},
    errors=(401, 404),
    media_types=(MEDIA_TYPE,),
)
def output(batch_id: str) -> Response:
    batch = _batch(batch_id)
    return _jsonl(_stored(batch.output_file_id) or results.output_lines(batch))


@blueprint.get("/v1/batches/<batch_id>/errors")
@describe(
    "Read a batch's error file",
    answers={200: (None, "JSONL, by line: those that failed so far, and all that cannot be run.")},
    errors=(401, 404),
    media_types=(MEDIA_TYPE,),
)
def errors(batch_id: str) -> Response:
    batch = _batch(batch_id)
    return _jsonl(_stored(batch.error_file_id) or results.error_lines(batch))


def _batch(batch_id: str) -> Batch:
    with transaction() as session:
        return queries.get_batch(session, account_id(), batch_id)


def _stored(file_id: str | None) -> Iterator[bytes] | None:
    """A file that a batch left, where it is still there: it outlives the lines."""
    if file_id is None:
        return None
    try:
        with transaction() as session:
            file = shelf.get_file(session, account_id(), file_id)
    except FileNotFound:
        return None
    return storage().read(file.digest, 0, file.bytes)


def _jsonl(pieces: Iterator[bytes]) -> Response:
    return Response(_chunks(pieces), mimetype=MEDIA_TYPE)


def _chunks(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same in fewer, larger pieces."""
    chunk = bytearray()
    for piece in pieces:
        chunk += piece
        if len(chunk) >= CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    yield bytes(chunk)
