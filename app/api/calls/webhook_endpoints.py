"""`/v1/webhook_endpoints`: the endpoints of `/v1/webhooks` as OpenAI's clients manage them, in its shapes."""

from typing import Annotated, Any, Final, Literal

from flask import Response, jsonify
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from app import clock
from app.api import draining
from app.api.auth import account_id, protected
from app.api.bodies import parse_body, parse_query
from app.api.describe import describe
from app.api.errors import ApiError
from app.api.webhooks import endpoints as webhooks
from app.api.webhooks.views import WebhookEndpointDeleted, page_of
from app.db import transaction
from app.webhooks import catalogue, endpoints, queries, redelivering, registering, secrets
from app.webhooks.errors import EventTypeUnknown
from app.webhooks.tables import Attempt, Endpoint, Scheme, Secret
from config.settings import settings

blueprint = protected("webhook_endpoints")

DAY_SECONDS: Final = 86_400
TICK_SECONDS: Final = 0.2
Name = Annotated[str, StringConstraints(min_length=1, max_length=512)]


class CreateWebhookEndpoint(BaseModel):
    model_config = ConfigDict(extra="forbid")

    event_types: webhooks.Events
    name: Name
    url: webhooks.Url


class UpdateWebhookEndpoint(BaseModel):
    """What is not given stays."""

    model_config = ConfigDict(extra="forbid")

    event_types: webhooks.Events | None = None
    name: Name | None = None
    url: webhooks.Url | None = None


class RotateWebhookSecret(BaseModel):
    model_config = ConfigDict(extra="forbid")

    keep_old_secret_active_for_24_hours: bool = False


class SendWebhookTest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    event_type: str


class OpenAIWebhookEndpoint(BaseModel):
    id: str
    object: Literal["webhook_endpoint"] = "webhook_endpoint"
    created_at: int
    name: str
    url: str
    event_types: list[str]
    signing_secret_hint: str | None = Field(description="Null for ed25519.")


class OpenAIWebhookEndpointWithSecret(OpenAIWebhookEndpoint):
    signing_secret: str = Field(description="Shown this once.")


class OpenAIWebhookEndpointList(BaseModel):
    object: Literal["list"] = "list"
    data: list[OpenAIWebhookEndpoint]
    first_id: str | None
    last_id: str | None
    has_more: bool


class WebhookTestResult(BaseModel):
    object: Literal["webhook_endpoint.test"] = "webhook_endpoint.test"
    event_type: str
    status_code: int = Field(description="What the endpoint answered.")
    success: Literal[True] = True
    webhook_endpoint_id: str


class WebhookEventTypes(BaseModel):
    object: Literal["list"] = "list"
    data: list[str]


class EndpointSilent(ApiError):
    """A test event got no answer."""

    code = "webhook_test_unanswered"


@blueprint.get("/v1/webhook_event_types")
@describe("List types of webhook events", answers={200: (WebhookEventTypes, "All of them.")}, errors=(401,))
def types() -> Response:
    return jsonify(object="list", data=list(catalogue.LOG_TYPES))


@blueprint.post("/v1/webhook_endpoints")
@describe(
    "Register a webhook endpoint, as OpenAI's",
    body=CreateWebhookEndpoint,
    answers={200: (OpenAIWebhookEndpointWithSecret, "The endpoint. Its secret is shown this once.")},
    errors=(400, 401, 403, 413),
)
def create() -> Response:
    wanted = parse_body(CreateWebhookEndpoint)
    catalogue.require_known(wanted.event_types, "event_types")
    registering.require_callback(wanted.url, "url")
    draft = endpoints.Draft(wanted.url, wanted.event_types, wanted.name)
    with transaction() as session:
        return jsonify(_with_secret(*endpoints.create(session, account_id(), draft)))


@blueprint.get("/v1/webhook_endpoints")
@describe(
    "List webhook endpoints, as OpenAI's",
    query=webhooks.EndpointsQuery,
    answers={200: (OpenAIWebhookEndpointList, "A page, newest first.")},
    errors=(400, 401, 404),
)
def index() -> Response:
    page = parse_query(webhooks.EndpointsQuery)
    with transaction() as session:
        if page.after is not None:
            endpoints.get_registered(session, account_id(), page.after)
        found = queries.list_endpoints(session, account_id(), after=page.after, limit=page.limit + 1)
        live = secrets.live_by_endpoint(session, [endpoint.id for endpoint in found])
    return jsonify(page_of([_view(endpoint, live[endpoint.id][0]) for endpoint in found], page.limit))


@blueprint.get("/v1/webhook_endpoints/<endpoint_id>")
@describe(
    "Show a webhook endpoint, as OpenAI's",
    answers={200: (OpenAIWebhookEndpoint, "The endpoint.")},
    errors=(401, 404),
)
def show(endpoint_id: str) -> Response:
    with transaction() as session:
        endpoint = endpoints.get_registered(session, account_id(), endpoint_id)
        return jsonify(_view(endpoint, secrets.live(session, account_id(), endpoint.id)[0]))


@blueprint.post("/v1/webhook_endpoints/<endpoint_id>")
@describe(
    "Change a webhook endpoint, as OpenAI's",
    body=UpdateWebhookEndpoint,
    answers={200: (OpenAIWebhookEndpoint, "The endpoint.")},
    errors=(400, 401, 404, 413),
)
def change(endpoint_id: str) -> Response:
    wanted = parse_body(UpdateWebhookEndpoint)
    catalogue.require_known(wanted.event_types or (), "event_types")
    if wanted.url is not None:
        registering.require_callback(wanted.url, "url")
    given = {"events": wanted.event_types, "description": wanted.name, "url": wanted.url}
    with transaction() as session:
        values = {name: value for name, value in given.items() if value is not None}
        endpoints.get_registered(session, account_id(), endpoint_id)
        endpoints.change(session, account_id(), endpoint_id, values)
    return show(endpoint_id)


@blueprint.delete("/v1/webhook_endpoints/<endpoint_id>")
@describe(
    "Delete a webhook endpoint, as OpenAI's",
    answers={200: (WebhookEndpointDeleted, "It is gone, with its deliveries.")},
    errors=(401, 404),
)
def delete(endpoint_id: str) -> Response:
    return webhooks.delete(endpoint_id)


@blueprint.post("/v1/webhook_endpoints/<endpoint_id>/rotate_secret")
@describe(
    "Give a webhook endpoint a new secret, as OpenAI's",
    body=RotateWebhookSecret,
    answers={200: (OpenAIWebhookEndpointWithSecret, "The endpoint. Its new secret is shown this once.")},
    errors=(400, 401, 404, 413),
)
def rotate_secret(endpoint_id: str) -> Response:
    wanted = webhooks.optional_body(RotateWebhookSecret)
    overlap_seconds = DAY_SECONDS if wanted.keep_old_secret_active_for_24_hours else 0
    with transaction() as session:
        endpoint = endpoints.get_registered(session, account_id(), endpoint_id)
        secret = secrets.rotate(session, account_id(), endpoint.id, Scheme.HMAC, overlap_seconds)
        return jsonify(_with_secret(endpoint, secret))


@blueprint.post("/v1/webhook_endpoints/<endpoint_id>/test")
@describe(
    "Send a test event and wait for the answer, as OpenAI's",
    body=SendWebhookTest,
    answers={200: (WebhookTestResult, "What the endpoint answered.")},
    errors=(400, 401, 404, 409, 413),
)
def send_test(endpoint_id: str) -> Response:
    event_type = parse_body(SendWebhookTest).event_type
    if event_type not in catalogue.LOG_TYPES:
        raise EventTypeUnknown("event_type", event_type, list(catalogue.LOG_TYPES))
    with transaction() as session:
        endpoint = endpoints.get_registered(session, account_id(), endpoint_id)
        delivery = redelivering.send_test(session, endpoint, event_type)
    attempt = _first_attempt(delivery.id)
    if attempt is None or attempt.status_code is None:
        raise EndpointSilent(f"The endpoint did not answer: {attempt.error if attempt else 'no attempt yet'}.")
    return jsonify(
        object="webhook_endpoint.test",
        event_type=event_type,
        status_code=attempt.status_code,
        success=True,
        webhook_endpoint_id=endpoint_id,
    )


def _first_attempt(delivery_id: str) -> Attempt | None:
    """None where no sender had made one by the time that an attempt may take."""
    deadline = clock.monotonic() + settings().webhook_timeout_seconds
    while clock.monotonic() < deadline and not draining.has_begun():
        with transaction() as session:
            made = queries.list_attempts(session, [delivery_id])
        if made:
            return made[delivery_id][0]
        clock.sleep(TICK_SECONDS)
    return None


def _view(endpoint: Endpoint, secret: Secret) -> dict[str, Any]:
    """As `OpenAIWebhookEndpoint`; `secret` is its newest."""
    return {
        "id": endpoint.id,
        "object": "webhook_endpoint",
        "created_at": int(endpoint.created_at.timestamp()),
        "name": endpoint.description,
        "url": endpoint.url,
        "event_types": endpoint.events,
        "signing_secret_hint": f"whsec_…{secret.secret[-4:]}" if secret.scheme is Scheme.HMAC else None,
    }


def _with_secret(endpoint: Endpoint, secret: Secret) -> dict[str, Any]:
    return {**_view(endpoint, secret), "signing_secret": secret.secret}
