"""Messages: what is said of an event, fixed as the bytes that are signed, and to whom it goes. Bodies are thin
(OpenAI's shape, below 20 KB): who wants the output fetches it from `data.url`.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import orjson
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app import clock
from app.ids import new_id
from app.webhooks.tables import Delivery, DeliveryState, Endpoint, Message

MAX_TEXT_CHARS: Final = 2000
# Valid in JSON, and line ends to some readers.
_ESCAPED: Final = str.maketrans({"\u0085": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def compose(account_id: str, event_type: str, created_at: datetime, data: dict[str, Any]) -> Message:
    """A message, not stored yet; `data` has the subject's `id` and its `sequence`."""
    message_id = new_id("evt")
    body = {
        "id": message_id,
        "object": "event",
        "created_at": int(created_at.timestamp()),
        "type": event_type,
        "data": data,
    }
    return Message(
        id=message_id,
        account_id=account_id,
        type=event_type,
        subject=data["id"],
        sequence=data["sequence"],
        body=orjson.dumps(body).decode().translate(_ESCAPED),
    )


def cut(said: str) -> str:
    """No longer than a thin body may carry."""
    return said if len(said) <= MAX_TEXT_CHARS else f"{said[: MAX_TEXT_CHARS - 1]}…"


def address(message_id: str, endpoint: Endpoint) -> Delivery:
    """A delivery, not stored yet. One to a disabled endpoint is discarded at once: a redelivery finds it."""
    delivery = Delivery(
        id=new_id("dlv"), account_id=endpoint.account_id, message_id=message_id, endpoint_id=endpoint.id
    )
    if endpoint.disabled_at is not None:
        delivery.state = DeliveryState.DISCARDED
        delivery.ended_at = clock.now()
    return delivery


def store(session: Session, messages: Sequence[Message], deliveries: Sequence[Delivery]) -> None:
    # In bulk, with nothing read back: twice as fast. The deliveries refer to the messages.
    session.bulk_save_objects(messages)
    session.bulk_save_objects(deliveries)


def next_sequence(session: Session, subject: str) -> int:
    """For a subject that has no log of its own."""
    last = session.scalar(select(func.max(Message.sequence)).where(Message.subject == subject))
    return 1 + (last or 0)
