"""`/v1/batches`: create, show, list, cancel, in OpenAI's shapes, and retry what failed."""

from typing import Annotated, Any

from flask import Response, jsonify
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session

from app.api.auth import account_id, caller, protected
from app.api.batches import shapes, views
from app.api.bodies import parse_body, parse_query
from app.api.describe import describe
from app.api.submitting import idempotency_key
from app.batches import cancelling, creating, queries, retrying
from app.batches.creating import CreateBatch
from app.batches.tables import Batch
from app.db import transaction
from app.webhooks import registering

blueprint = protected("batches")

_KEY = (("Idempotency-Key", "The same key and body give the same batch, running or done."),)


class BatchesQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    after: str | None = Field(None, description="The last id of the page before.")
    limit: Annotated[int, Field(ge=1, le=100)] = 20


@blueprint.post("/v1/batches")
@describe(
    "Create a batch",
    body=CreateBatch,
    headers=_KEY,
    answers={200: (shapes.BatchView, "The batch; its lines are checked next.")},
    errors=(400, 401, 404, 409),
)
def create() -> Response:
    wanted, key = _with_callback(parse_body(CreateBatch)), idempotency_key()
    with transaction() as session:
        batch, is_new = creating.create(session, caller(), wanted, key)
        return _made(views.whole(session, batch), is_new=is_new)


def _with_callback(wanted: CreateBatch) -> CreateBatch:
    """With the `webhook_url` of its `metadata`, for clients that send OpenAI's parameters alone. Raises
    `UrlRefused`.
    """
    param = "webhook_url"
    if wanted.webhook_url is None and "webhook_url" in wanted.metadata:
        param = "metadata.webhook_url"
        wanted = wanted.model_copy(update={"webhook_url": wanted.metadata["webhook_url"]})
    if wanted.webhook_url is not None:
        registering.require_callback(wanted.webhook_url, param)
    return wanted


def _made(view: dict[str, Any], *, is_new: bool) -> Response:
    response = jsonify(view)
    response.headers["Location"] = view["urls"]["self"]
    if not is_new:
        response.headers["Idempotency-Replayed"] = "true"
    return response


@blueprint.get("/v1/batches")
@describe(
    "List batches",
    query=BatchesQuery,
    answers={200: (shapes.BatchList, "A page, newest first.")},
    errors=(400, 401, 404),
)
def index() -> Response:
    page = parse_query(BatchesQuery)
    with transaction() as session:
        if page.after is not None:
            queries.get_batch(session, account_id(), page.after)
        found = queries.list_batches(session, account_id(), after=page.after, limit=page.limit + 1)
        shown = views.listed(session, found[: page.limit])
    return jsonify(
        object="list",
        data=shown,
        first_id=shown[0]["id"] if shown else None,
        last_id=shown[-1]["id"] if shown else None,
        has_more=len(found) > page.limit,
    )


@blueprint.get("/v1/batches/<batch_id>")
@describe(
    "Show a batch",
    answers={200: (shapes.BatchView, "The batch, with how it stands now.")},
    errors=(401, 404),
)
def show(batch_id: str) -> Response:
    with transaction() as session:
        return jsonify(views.whole(session, _own(session, batch_id)))


@blueprint.post("/v1/batches/<batch_id>/cancel")
@describe(
    "Cancel a batch",
    answers={
        200: (
            shapes.BatchView,
            "The batch: what runs is stopped and keeps what it said. As it was, if it had ended already.",
        )
    },
    errors=(401, 404),
)
def cancel(batch_id: str) -> Response:
    with transaction() as session:
        batch = cancelling.request(session, _own(session, batch_id))
        return jsonify(views.whole(session, batch))


@blueprint.post("/v1/batches/<batch_id>/retry")
@describe(
    "Run a batch's failed lines again",
    headers=_KEY,
    answers={200: (shapes.BatchView, "A new batch, of the lines that failed or were stopped.")},
    errors=(400, 401, 404, 409, 429, 503),
)
def retry(batch_id: str) -> Response:
    key = idempotency_key()
    with transaction() as session:
        batch = retrying.retry(session, caller(), _own(session, batch_id), key)
        return _made(views.whole(session, batch), is_new=True)


def _own(session: Session, batch_id: str) -> Batch:
    return queries.get_batch(session, account_id(), batch_id)
