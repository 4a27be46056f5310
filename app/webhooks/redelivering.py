"""Sending again, and sending a test. A message that is sent again keeps its id, so that a receiver that had it
knows. Functions take the caller's session and never commit.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from app import clock
from app.ids import earliest_id, new_id
from app.webhooks import catalogue, endpoints, messages
from app.webhooks.errors import EndpointDisabled, EndpointNotFound
from app.webhooks.tables import Delivery, DeliveryState, Endpoint, Message
from config.settings import settings

MAX_RANGE: Final = 10_000


def send_again(session: Session, message: Message, endpoint: Endpoint) -> Delivery:
    """Raises `EndpointDisabled`."""
    delivery = messages.address(message.id, _open(session, endpoint))
    messages.store(session, [], [delivery])
    return session.get_one(Delivery, delivery.id)


def _open(session: Session, endpoint: Endpoint) -> Endpoint:
    # Locked: whoever disables it waits, and then finds the deliveries made here.
    locked = endpoints.lock(session, endpoint.id)
    if locked is None:
        raise EndpointNotFound(endpoint.id)
    if locked.disabled_at is not None:
        raise EndpointDisabled(endpoint.id)
    # Whoever asks for it by hand does not wait behind the breaker.
    locked.retry_at = None
    return locked


def send_to_all_again(session: Session, message: Message) -> list[Delivery]:
    """To every enabled endpoint that it was addressed to."""
    addressed = select(Delivery.endpoint_id).where(Delivery.message_id == message.id)
    enabled = (
        select(Endpoint)
        .where(Endpoint.id.in_(addressed), Endpoint.disabled_at.is_(None))
        .order_by(Endpoint.origin, Endpoint.id)
        .with_for_update(key_share=True)
    )
    return [send_again(session, message, endpoint) for endpoint in session.scalars(enabled).all()]


def send_range_again(
    session: Session,
    endpoint: Endpoint,
    states: Collection[DeliveryState],
    since: datetime | None,
    until: datetime | None,
) -> tuple[int, bool]:
    """What an endpoint was to be told from `since` to before `until`, where its last delivery ended in one of
    `states`. The oldest come first, at most `MAX_RANGE`: how many there were, and whether more are left. Raises
    `EndpointDisabled`.
    """
    endpoint = _open(session, endpoint)
    last = (
        select(Delivery.message_id, Delivery.state)
        .where(Delivery.endpoint_id == endpoint.id, *_between(since, until))
        .ext(distinct_on(Delivery.message_id))
        .order_by(Delivery.message_id, Delivery.id.desc())
        .subquery()
    )
    chosen = select(last.c.message_id).where(last.c.state.in_(states)).order_by(last.c.message_id)
    found = session.scalars(chosen.limit(MAX_RANGE + 1)).all()
    messages.store(session, [], [messages.address(message_id, endpoint) for message_id in found[:MAX_RANGE]])
    return len(found[:MAX_RANGE]), len(found) > MAX_RANGE


def _between(since: datetime | None, until: datetime | None) -> list[ColumnElement[bool]]:
    """By when messages were made, which their ids say."""
    bounds = []
    if since is not None:
        bounds.append(Delivery.message_id >= earliest_id("evt", since))
    if until is not None:
        bounds.append(Delivery.message_id < earliest_id("evt", until))
    return bounds


_PREFIXES: Final = {"job": "job", "response": "resp", "batch": "batch"}


def send_test(session: Session, endpoint: Endpoint, event_type: str = catalogue.TEST) -> Delivery:
    """An event that tells of the endpoint or, under another type, of what does not exist. Raises
    `EndpointDisabled`.
    """
    kind, _, status = event_type.partition(".")
    data = {"id": endpoint.id, "object": "webhook_endpoint", "status": "enabled"}
    if kind in _PREFIXES:
        data = {"id": new_id(_PREFIXES[kind]), "object": kind, "status": status}
    url = f"{settings().base_url}/v1/webhooks/endpoints/{endpoint.id}"
    said = {**data, "sequence": messages.next_sequence(session, data["id"]), "url": url}
    message = messages.compose(endpoint.account_id, event_type, clock.now(), said)
    messages.store(session, [message], [])
    return send_again(session, message, endpoint)
