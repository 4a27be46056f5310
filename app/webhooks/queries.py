"""What the edge asks of webhooks: endpoints, messages, deliveries and what became of each attempt."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.ids import is_id
from app.webhooks.errors import DeliveryNotFound, MessageNotFound
from app.webhooks.tables import Attempt, Delivery, DeliveryState, Endpoint, Message, Origin


def list_endpoints(session: Session, account_id: str, *, after: str | None, limit: int) -> list[Endpoint]:
    """One page of those that were registered, newest first; `after` is the last id of the page before."""
    statement = select(Endpoint).where(Endpoint.account_id == account_id, Endpoint.origin == Origin.REGISTERED)
    if after is not None:
        statement = statement.where(Endpoint.id < after)
    return list(session.scalars(statement.order_by(Endpoint.id.desc()).limit(limit)))


@dataclass(frozen=True, slots=True)
class Filter:
    """Which deliveries to list; None filters nothing. `subject` is the id of what they tell of."""

    endpoint_id: str | None = None
    message_id: str | None = None
    state: DeliveryState | None = None
    event_type: str | None = None
    subject: str | None = None


Told = tuple[Delivery, Message, Endpoint]


def list_deliveries(
    session: Session, account_id: str, chosen: Filter, *, after: str | None, limit: int
) -> list[Told]:
    """One page, newest first, each with its message and endpoint."""
    statement = _TOLD.where(Delivery.account_id == account_id)
    for column, value in (
        (Delivery.endpoint_id, chosen.endpoint_id),
        (Delivery.message_id, chosen.message_id),
        (Delivery.state, chosen.state),
        (Message.type, chosen.event_type),
        (Message.subject, chosen.subject),
    ):
        if value is not None:
            statement = statement.where(column == value)
    if after is not None:
        statement = statement.where(Delivery.id < after)
    rows = session.execute(statement.order_by(Delivery.id.desc()).limit(limit))
    return [(delivery, message, endpoint) for delivery, message, endpoint in rows]


_TOLD = (
    select(Delivery, Message, Endpoint)
    .join(Message, Message.id == Delivery.message_id)
    .join(Endpoint, Endpoint.id == Delivery.endpoint_id)
)


def get_delivery(session: Session, account_id: str, delivery_id: str) -> Told:
    """Raises `DeliveryNotFound`, also for another account's."""
    if is_id("dlv", delivery_id):
        found = session.execute(
            _TOLD.where(Delivery.id == delivery_id, Delivery.account_id == account_id)
        ).one_or_none()
        if found is not None:
            return found[0], found[1], found[2]
    raise DeliveryNotFound(delivery_id)


def get_message(session: Session, account_id: str, message_id: str) -> Message:
    """Raises `MessageNotFound`, also for another account's."""
    message = session.get(Message, message_id) if is_id("evt", message_id) else None
    if message is None or message.account_id != account_id:
        raise MessageNotFound(message_id)
    return message


def list_attempts(session: Session, delivery_ids: Collection[str]) -> dict[str, list[Attempt]]:
    """By delivery, in order."""
    statement = select(Attempt).where(Attempt.delivery_id.in_(delivery_ids))
    found: dict[str, list[Attempt]] = {}
    for attempt in session.scalars(statement.order_by(Attempt.delivery_id, Attempt.number)):
        found.setdefault(attempt.delivery_id, []).append(attempt)
    return found
