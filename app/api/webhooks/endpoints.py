"""`/v1/webhooks/endpoints`, `/v1/webhooks/secret`: who is told of what, and what messages are signed with."""

from typing import Annotated, Final

from flask import Response, jsonify, request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from app.api.auth import account_id, protected
from app.api.bodies import Shape, parse_body, parse_query
from app.api.describe import describe
from app.api.webhooks import views
from app.db import transaction
from app.webhooks import catalogue, endpoints, queries, registering, secrets
from app.webhooks.tables import Scheme

blueprint = protected("webhooks")

MAX_EVENTS: Final = 64
Url = Annotated[str, StringConstraints(min_length=1, max_length=registering.MAX_URL_BYTES)]
Events = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=64)]],
    Field(min_length=1, max_length=MAX_EVENTS, description="Types, groups of types like `batch.*`, or `*`."),
]
Description = Annotated[str, StringConstraints(max_length=512)]


class CreateEndpoint(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: Url
    events: Events = Field(list(catalogue.USUAL), validate_default=False)
    description: Description = ""
    scheme: Scheme = Field(Scheme.HMAC, description="`v1`: HMAC-SHA256. `v1a`: ed25519.")


class ChangeEndpoint(BaseModel):
    """What is not given stays."""

    model_config = ConfigDict(extra="forbid")

    url: Url | None = None
    events: Events | None = None
    description: Description | None = None
    enabled: bool | None = Field(None, description="True begins anew, as if nothing had failed.")


class RotateSecret(BaseModel):
    model_config = ConfigDict(extra="forbid")

    overlap_seconds: int = Field(
        secrets.OVERLAP_SECONDS,
        ge=0,
        le=secrets.MAX_OVERLAP_SECONDS,
        description="How long the secret before it signs, too.",
    )
    scheme: Scheme | None = Field(None, description="Without one, as before.")


class EndpointsQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    after: str | None = Field(None, description="The last id of the page before.")
    limit: Annotated[int, Field(ge=1, le=100)] = 20


def optional_body(shape: type[Shape]) -> Shape:
    """As `parse_body`, where no body at all means every default."""
    return parse_body(shape) if request.get_data() else shape()


@blueprint.post("/v1/webhooks/endpoints")
@describe(
    "Register a webhook endpoint",
    body=CreateEndpoint,
    answers={201: (views.WebhookEndpointWithSecret, "The endpoint. Its secret is shown this once.")},
    errors=(400, 401, 403, 413),
)
def create() -> tuple[Response, int]:
    wanted = parse_body(CreateEndpoint)
    registering.require_callback(wanted.url, "url")
    draft = endpoints.Draft(wanted.url, wanted.events, wanted.description, wanted.scheme)
    with transaction() as session:
        endpoint, secret = endpoints.create(session, account_id(), draft)
        view = views.endpoint_view(endpoint, [secret])
    return jsonify({**view, "secret": views.shown_once(secret)}), 201


@blueprint.get("/v1/webhooks/endpoints")
@describe(
    "List webhook endpoints",
    query=EndpointsQuery,
    answers={200: (views.WebhookEndpointList, "A page, newest first.")},
    errors=(400, 401, 404),
)
def index() -> Response:
    page = parse_query(EndpointsQuery)
    with transaction() as session:
        if page.after is not None:
            endpoints.get_endpoint(session, account_id(), page.after)
        found = queries.list_endpoints(session, account_id(), after=page.after, limit=page.limit + 1)
        live = secrets.live_by_endpoint(session, [endpoint.id for endpoint in found])
    shown = [views.endpoint_view(endpoint, live.get(endpoint.id, ())) for endpoint in found]
    return jsonify(views.page_of(shown, page.limit))


@blueprint.get("/v1/webhooks/endpoints/<endpoint_id>")
@describe("Show a webhook endpoint", answers={200: (views.WebhookEndpoint, "The endpoint.")}, errors=(401, 404))
def show(endpoint_id: str) -> Response:
    with transaction() as session:
        endpoint = endpoints.get_endpoint(session, account_id(), endpoint_id)
        live = secrets.live_by_endpoint(session, [endpoint.id]).get(endpoint.id, ())
        return jsonify(views.endpoint_view(endpoint, live))


@blueprint.post("/v1/webhooks/endpoints/<endpoint_id>")
@describe(
    "Change a webhook endpoint",
    body=ChangeEndpoint,
    answers={200: (views.WebhookEndpoint, "The endpoint.")},
    errors=(400, 401, 404, 413),
)
def change(endpoint_id: str) -> Response:
    wanted = parse_body(ChangeEndpoint)
    if wanted.url is not None:
        registering.require_callback(wanted.url, "url")
    values = wanted.model_dump(include={"url", "events", "description"}, exclude_none=True)
    with transaction() as session:
        endpoint = endpoints.change(session, account_id(), endpoint_id, values)
        if wanted.enabled:
            endpoints.enable(session, endpoint)
        elif wanted.enabled is False:
            endpoints.disable(session, endpoint, endpoints.BY_OWNER)
    return show(endpoint_id)


@blueprint.delete("/v1/webhooks/endpoints/<endpoint_id>")
@describe(
    "Delete a webhook endpoint",
    answers={200: (views.WebhookEndpointDeleted, "It is gone, with its deliveries.")},
    errors=(401, 404),
)
def delete(endpoint_id: str) -> Response:
    with transaction() as session:
        endpoints.drop(session, account_id(), endpoint_id)
    return jsonify(id=endpoint_id, object="webhook_endpoint.deleted", deleted=True)


@blueprint.post("/v1/webhooks/endpoints/<endpoint_id>/rotate")
@describe(
    "Give a webhook endpoint a new secret",
    body=RotateSecret,
    answers={200: (views.WebhookEndpointWithSecret, "The endpoint. Its new secret is shown this once.")},
    errors=(400, 401, 404, 413),
)
def rotate(endpoint_id: str) -> Response:
    wanted = optional_body(RotateSecret)
    with transaction() as session:
        endpoint = endpoints.get_registered(session, account_id(), endpoint_id)
        secret = secrets.rotate(session, account_id(), endpoint.id, wanted.scheme, wanted.overlap_seconds)
        live = secrets.live(session, account_id(), endpoint.id)
        view = views.endpoint_view(endpoint, live)
    return jsonify({**view, "secret": views.shown_once(secret)})


@blueprint.get("/v1/webhooks/secret")
@describe(
    "Show the account's secrets",
    answers={200: (views.WebhookSecrets, "What messages to a `webhook_url` are signed with.")},
    errors=(401,),
)
def show_secret() -> Response:
    with transaction() as session:
        live = secrets.live(session, account_id(), None)
    return jsonify(object="webhook_secrets", secrets=[views.secret_view(secret) for secret in live])


@blueprint.post("/v1/webhooks/secret/rotate")
@describe(
    "Give the account a new secret, or its first",
    body=RotateSecret,
    answers={200: (views.WebhookSecretsWithSecret, "For every `webhook_url`. It is shown this once.")},
    errors=(400, 401, 413),
)
def rotate_secret() -> Response:
    wanted = optional_body(RotateSecret)
    with transaction() as session:
        secret = secrets.rotate(session, account_id(), None, wanted.scheme, wanted.overlap_seconds)
        live = secrets.live(session, account_id(), None)
    return jsonify(
        object="webhook_secrets",
        secrets=[views.secret_view(one) for one in live],
        secret=views.shown_once(secret),
    )
