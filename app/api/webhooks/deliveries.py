"""The delivery log of webhooks, and sending again: by delivery, by event, by range of time, and as a test."""

from typing import Annotated, Any

from flask import Response, jsonify
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session

from app.api.auth import account_id, protected
from app.api.bodies import parse_query
from app.api.describe import describe
from app.api.webhooks import views
from app.api.webhooks.endpoints import optional_body
from app.db import transaction
from app.webhooks import endpoints, queries, redelivering
from app.webhooks.tables import Delivery, DeliveryState

blueprint = protected("webhook_deliveries")


class DeliveriesQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    state: DeliveryState | None = None
    type: str | None = Field(None, description="Of the event.")
    subject: str | None = Field(None, description="The id of what the event tells of.")
    event_id: str | None = None
    after: str | None = Field(None, description="The last id of the page before.")
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class AllDeliveriesQuery(DeliveriesQuery):
    endpoint_id: str | None = None


class RedeliverRange(BaseModel):
    """Which events: by when they were made, and how their last delivery to the endpoint ended."""

    model_config = ConfigDict(extra="forbid")

    since: AwareDatetime | None = Field(None, description="ISO 8601 or Unix seconds.")
    until: AwareDatetime | None = Field(None, description="Not included.")
    state: list[DeliveryState] = Field(
        [DeliveryState.FAILED, DeliveryState.DISCARDED], min_length=1, max_length=len(DeliveryState)
    )


@blueprint.get("/v1/webhooks/deliveries")
@describe(
    "List webhook deliveries",
    query=AllDeliveriesQuery,
    answers={200: (views.WebhookDeliveryList, "A page, newest first.")},
    errors=(400, 401, 404),
)
def index() -> Response:
    page = parse_query(AllDeliveriesQuery)
    return _page(page, page.endpoint_id)


@blueprint.get("/v1/webhooks/endpoints/<endpoint_id>/deliveries")
@describe(
    "List the deliveries to a webhook endpoint",
    query=DeliveriesQuery,
    answers={200: (views.WebhookDeliveryList, "A page, newest first.")},
    errors=(400, 401, 404),
)
def of_endpoint(endpoint_id: str) -> Response:
    return _page(parse_query(DeliveriesQuery), endpoint_id)


def _page(page: DeliveriesQuery, endpoint_id: str | None) -> Response:
    with transaction() as session:
        if endpoint_id is not None:
            endpoints.get_endpoint(session, account_id(), endpoint_id)
        if page.event_id is not None:
            queries.get_message(session, account_id(), page.event_id)
        if page.after is not None:
            queries.get_delivery(session, account_id(), page.after)
        chosen = queries.Filter(endpoint_id, page.event_id, page.state, page.type, page.subject)
        found = queries.list_deliveries(session, account_id(), chosen, after=page.after, limit=page.limit + 1)
        attempts = queries.list_attempts(session, [delivery.id for delivery, _, _ in found])
    shown = [views.delivery_view(told, attempts.get(told[0].id, ())) for told in found]
    return jsonify(views.page_of(shown, page.limit))


@blueprint.get("/v1/webhooks/deliveries/<delivery_id>")
@describe(
    "Show a webhook delivery",
    answers={200: (views.WebhookDeliveryWithAttempts, "The delivery, with every attempt.")},
    errors=(401, 404),
)
def show(delivery_id: str) -> Response:
    with transaction() as session:
        return jsonify(_whole(session, delivery_id))


def _whole(session: Session, delivery_id: str) -> dict[str, Any]:
    told = queries.get_delivery(session, account_id(), delivery_id)
    attempts = queries.list_attempts(session, [delivery_id]).get(delivery_id, [])
    return {**views.delivery_view(told, attempts), "log": [views.attempt_view(one) for one in attempts]}


@blueprint.post("/v1/webhooks/deliveries/<delivery_id>/redeliver")
@describe(
    "Deliver again",
    answers={202: (views.WebhookDeliveryWithAttempts, "A new delivery of the same event.")},
    errors=(401, 404, 409),
)
def redeliver(delivery_id: str) -> tuple[Response, int]:
    with transaction() as session:
        _, message, endpoint = queries.get_delivery(session, account_id(), delivery_id)
        return _accepted(session, redelivering.send_again(session, message, endpoint))


def _accepted(session: Session, delivery: Delivery) -> tuple[Response, int]:
    return jsonify(_whole(session, delivery.id)), 202


@blueprint.post("/v1/webhooks/endpoints/<endpoint_id>/test")
@describe(
    "Send a test event",
    answers={202: (views.WebhookDeliveryWithAttempts, "Its delivery. The event's type is `webhook.test`.")},
    errors=(401, 404, 409),
)
def send_test(endpoint_id: str) -> tuple[Response, int]:
    with transaction() as session:
        endpoint = endpoints.get_endpoint(session, account_id(), endpoint_id)
        return _accepted(session, redelivering.send_test(session, endpoint))


@blueprint.post("/v1/webhooks/endpoints/<endpoint_id>/redeliver")
@describe(
    "Deliver a range of events again",
    body=RedeliverRange,
    answers={202: (views.WebhookRedelivery, "How many; what is on its way already is not sent twice.")},
    errors=(400, 401, 404, 409, 413),
)
def redeliver_range(endpoint_id: str) -> tuple[Response, int]:
    wanted = optional_body(RedeliverRange)
    with transaction() as session:
        endpoint = endpoints.get_endpoint(session, account_id(), endpoint_id)
        count, has_more = redelivering.send_range_again(
            session, endpoint, wanted.state, wanted.since, wanted.until
        )
    return jsonify(object="webhook_redelivery", count=count, has_more=has_more), 202


@blueprint.get("/v1/webhooks/events/<event_id>")
@describe(
    "Show what an event says", answers={200: (views.WebhookEvent, "The event, as sent.")}, errors=(401, 404)
)
def show_event(event_id: str) -> Response:
    with transaction() as session:
        return jsonify(views.event_view(queries.get_message(session, account_id(), event_id)))


@blueprint.post("/v1/webhooks/events/<event_id>/redeliver")
@describe(
    "Deliver an event again",
    answers={202: (views.WebhookRedelivery, "To every enabled endpoint that it was sent to.")},
    errors=(401, 404),
)
def redeliver_event(event_id: str) -> tuple[Response, int]:
    with transaction() as session:
        message = queries.get_message(session, account_id(), event_id)
        made = redelivering.send_to_all_again(session, message)
    return jsonify(object="webhook_redelivery", count=len(made), has_more=False), 202
