"""`POST /v1/responses`: a response is a job, created by a request that waits for it, streams it or leaves it in
the background.
"""

from typing import Any, Literal

from flask import Response, jsonify
from pydantic import BaseModel

from app import drafting, tokens
from app.api import submitting
from app.api.auth import protected
from app.api.bodies import parse_body
from app.api.calls import calling, response_views, telling
from app.api.calls.calling import Call
from app.api.calls.response_views import MEDIA_TYPES, STREAMED, EventStory, ResponseView
from app.api.describe import describe
from app.db import transaction
from app.jobs import log
from app.jobs.errors import JobError
from app.jobs.requests import JobRequest
from app.jobs.states import Status
from app.jobs.submission import Spoken
from app.jobs.tables import Surface
from app.openai import extras
from app.openai.errors import PreviousResponseNotFound, PreviousResponseUnusable
from app.openai.responses import body as bodies
from app.openai.responses import items, response
from app.openai.responses.body import CountInputTokens, CreateResponse
from app.openai.responses.events import Projector
from app.surfaces.fitting import fitted

blueprint = protected("responses")


class InputTokens(BaseModel):
    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: int


@blueprint.post("/v1/responses")
@describe(
    "Create a response",
    body=CreateResponse,
    headers=(("Idempotency-Key", "The same key and body attach to the same response, running or done."),),
    answers={200: (ResponseView, "The response; in the background, as it stands." + STREAMED)},
    errors=(400, 401, 404, 409, 413, 429, 503, 504),
    media_types=MEDIA_TYPES,
)
def create() -> Response:
    body = parse_body(CreateResponse)
    call, projector = begin(body, submitting.idempotency_key())
    if body.stream:
        return telling.stream(call, EventStory(projector))
    if not body.background:
        calling.wait(call)
        return jsonify(response_views.view(call.jobs[0].id))
    (joined,) = call.joined
    return jsonify(response.describe(joined.job) if joined.is_new else response_views.view(joined.job.id))


def begin(body: CreateResponse, key: str | None = None) -> tuple[Call, Projector]:
    """Start the job of a response, or attach to it; the call is to be followed, waited for or, in the
    background, left alone, and closed. Raises as `calling.start`.
    """
    earlier = _earlier(body.previous_response_id)
    wanted = fitted(bodies.to_request(body, items.messages(earlier)), body.truncation)
    spoken = Spoken(Surface.RESPONSES, bodies.echo(body, earlier), is_stored=body.store)
    try:
        call = _start(body, wanted, spoken, key)
    except JobError as error:
        raise extras.reworded(error, extras.words_of(body, bodies.NAMES)) from None
    return call, Projector(call.jobs[0])


def _start(body: CreateResponse, wanted: JobRequest, spoken: Spoken, key: str | None) -> Call:
    if body.background:
        return calling.start_in_background(wanted, spoken, key, follows=body.stream)
    call = calling.start([(wanted, spoken)], key, goes_on=calling.goes_on(body, body.routing, key))
    call.is_resumable = body.store
    return call


def _earlier(response_id: str | None) -> list[dict[str, Any]]:
    """The items of the conversation that a response follows."""
    if response_id is None:
        return []
    with transaction() as session:
        job = response_views.find(session, response_id)
        if job is None:
            raise PreviousResponseNotFound(response_id)
        if not job.status.is_terminal or job.status in {Status.FAILED, Status.EXPIRED}:
            raise PreviousResponseUnusable(response_id, job.status)
        output = log.read_output(session, job)
    return items.conversation(job, output)


@blueprint.post("/v1/responses/input_tokens")
@describe(
    "Count what a response would read",
    body=CountInputTokens,
    answers={200: (InputTokens, "The tokens of the input, instructions and tools.")},
    errors=(400, 401, 404, 413),
)
def count() -> Response:
    body = parse_body(CountInputTokens)
    earlier = items.messages(_earlier(body.previous_response_id))
    wanted = fitted(bodies.to_request(body, earlier), body.truncation)
    counted = tokens.count(drafting.model(wanted.model), wanted.prompt)
    return jsonify(object="response.input_tokens", input_tokens=counted)
