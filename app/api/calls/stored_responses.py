"""`/v1/responses/{id}`: a response found again, whole or as a stream from any event on, cancelled, deleted."""

from typing import Annotated, Any, Literal

from flask import Response, jsonify
from pydantic import BaseModel, ConfigDict, Field

from app.api import ending
from app.api.auth import account_id, protected
from app.api.bodies import parse_query
from app.api.calls import calling, response_views, telling
from app.api.calls.response_views import MEDIA_TYPES, STREAMED, EventStory, ResponseView
from app.api.describe import describe
from app.db import transaction
from app.jobs import queries
from app.openai.errors import ItemNotFound
from app.openai.responses import items
from app.openai.responses.events import Projector

blueprint = protected("stored_responses")


class ResponseDeleted(BaseModel):
    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class InputItems(BaseModel):
    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid")

    include: str | None = Field(None, description="A response has all that it was created with, asked or not.")


class RetrieveQuery(_Query):
    stream: bool = False
    starting_after: int | None = Field(
        None, ge=0, le=2**62, description="With `stream`: the last that you have."
    )
    include_obfuscation: bool = Field(False, description="Harmless: nothing is obfuscated here.")


class ItemsQuery(_Query):
    after: str | None = Field(None, description="The last id of the page before.")
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"


@blueprint.get("/v1/responses/<response_id>")
@describe(
    "Retrieve a response",
    query=RetrieveQuery,
    answers={200: (ResponseView, "The response with its output so far." + STREAMED)},
    errors=(400, 401, 404, 503),
    media_types=MEDIA_TYPES,
)
def show(response_id: str) -> Response:
    query = parse_query(RetrieveQuery)
    job = response_views.get(response_id)
    if query.stream:
        return telling.stream(calling.resume(job), EventStory(Projector(job, query.starting_after)))
    return jsonify(response_views.view(job.id))


@blueprint.post("/v1/responses/<response_id>/cancel")
@describe(
    "Cancel a response",
    answers={200: (ResponseView, "The response with its partial output; as it was, if it had ended already.")},
    errors=(401, 404),
)
def cancel(response_id: str) -> Response:
    job = response_views.get(response_id)
    ending.cancel(job.id)
    return jsonify(response_views.view(job.id))


@blueprint.delete("/v1/responses/<response_id>")
@describe(
    "Delete a response, cancelling it first where it still runs",
    answers={200: (ResponseDeleted, "It is gone.")},
    errors=(401, 404, 409),
)
def delete(response_id: str) -> Response:
    job = response_views.get(response_id)
    with transaction() as session:
        queries.require_free(session, job)
    if not job.status.is_terminal:
        ending.cancel(job.id)
    with transaction() as session:
        queries.delete_job(session, account_id(), job.id)
    return jsonify(id=response_id, object="response", deleted=True)


@blueprint.get("/v1/responses/<response_id>/input_items")
@describe(
    "List what a response was given",
    query=ItemsQuery,
    answers={200: (InputItems, "A page; what it took over from those before it included.")},
    errors=(400, 401, 404),
)
def list_input_items(response_id: str) -> Response:
    query = parse_query(ItemsQuery)
    found = items.input_items(response_views.get(response_id))
    if query.order == "desc":
        found.reverse()
    start = 0
    if query.after is not None:
        start = next((n for n, item in enumerate(found, 1) if item["id"] == query.after), 0)
        if not start:
            raise ItemNotFound(query.after)
    page = found[start : start + query.limit]
    return jsonify(
        object="list",
        data=page,
        first_id=page[0]["id"] if page else None,
        last_id=page[-1]["id"] if page else None,
        has_more=len(found) > start + query.limit,
    )
