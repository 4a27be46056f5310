"""The verbs of endpoints: create, change, disable, enable, drop. Each that changes what an account wants to be
told of also says so to the logs (`accounts.listens_to`). Functions take the caller's session and never commit.
"""

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from app import clock
from app.accounts.tables import Account
from app.ids import is_id, new_id
from app.jobs.errors import RequestInvalid
from app.webhooks import catalogue, messages, secrets
from app.webhooks.errors import EndpointNotFound, TooManyEndpoints
from app.webhooks.tables import Delivery, DeliveryState, Endpoint, Origin, Scheme, Secret
from config.settings import settings

BY_OWNER = "Its owner disabled it."


@dataclass(frozen=True, slots=True)
class Draft:
    """An endpoint as it is wanted; its URL is one that may be sent to (`registering.require_callback`)."""

    url: str
    events: list[str] = field(default_factory=lambda: list(catalogue.USUAL))
    description: str = ""
    scheme: Scheme = Scheme.HMAC


def create(session: Session, account_id: str, draft: Draft) -> tuple[Endpoint, Secret]:
    """The endpoint and its first secret. Raises `EventTypeUnknown`, `TooManyEndpoints`."""
    catalogue.require_known(draft.events)
    _lock_account(session, account_id)
    _require_room(session, account_id)
    endpoint = Endpoint(
        id=new_id("whe"),
        account_id=account_id,
        origin=Origin.REGISTERED,
        url=draft.url,
        events=draft.events,
        description=draft.description,
    )
    session.add(endpoint)
    session.flush()
    session.refresh(endpoint)
    secret = secrets.issue(session, account_id, endpoint.id, draft.scheme)
    _listen(session, account_id)
    return endpoint, secret


def _lock_account(session: Session, account_id: str) -> None:
    # One change at a time in an account: two must neither both find the last room nor each miss what the other
    # listens to.
    session.execute(select(Account.id).where(Account.id == account_id).with_for_update(key_share=True))


def _require_room(session: Session, account_id: str) -> None:
    limit = settings().max_webhook_endpoints
    owned = (Endpoint.account_id == account_id, Endpoint.origin == Origin.REGISTERED)
    count = session.scalar(select(func.count()).select_from(Endpoint).where(*owned)) or 0
    if limit and count >= limit:
        raise TooManyEndpoints(limit)


def _listen(session: Session, account_id: str) -> None:
    """Say which entries of logs are to become messages. Disabled endpoints count: what they would have been
    told is kept for a redelivery.
    """
    owned = (Endpoint.account_id == account_id, Endpoint.origin == Origin.REGISTERED)
    wanted = {name for events in session.scalars(select(Endpoint.events).where(*owned)) for name in events}
    session.execute(
        update(Account)
        .where(Account.id == account_id)
        .values(listens_to=sorted(catalogue.log_types(wanted)))
        .execution_options(synchronize_session=False)
    )


def get_endpoint(session: Session, account_id: str, endpoint_id: str) -> Endpoint:
    """Raises `EndpointNotFound`, also for another account's."""
    endpoint = session.get(Endpoint, endpoint_id) if is_id("whe", endpoint_id) else None
    if endpoint is None or endpoint.account_id != account_id:
        raise EndpointNotFound(endpoint_id)
    return endpoint


def get_registered(session: Session, account_id: str, endpoint_id: str) -> Endpoint:
    """Raises `EndpointNotFound`, also for that of a `webhook_url`, which has no secret of its own."""
    endpoint = get_endpoint(session, account_id, endpoint_id)
    if endpoint.origin is not Origin.REGISTERED:
        raise EndpointNotFound(endpoint_id)
    return endpoint


def lock(session: Session, endpoint_id: str) -> Endpoint | None:
    """Hold an endpoint's row until the end of the transaction: before any of its deliveries, so that two who
    change both never wait for each other.
    """
    statement = select(Endpoint).where(Endpoint.id == endpoint_id).with_for_update(key_share=True)
    return session.scalar(statement.execution_options(populate_existing=True))


def change(session: Session, account_id: str, endpoint_id: str, values: dict[str, Any]) -> Endpoint:
    """Change `url`, `events` or `description`. Raises `EndpointNotFound`, `EventTypeUnknown`."""
    catalogue.require_known(values.get("events", ()))
    _lock_account(session, account_id)
    get_endpoint(session, account_id, endpoint_id)
    endpoint = lock(session, endpoint_id)
    if endpoint is None:
        raise EndpointNotFound(endpoint_id)
    if values and endpoint.origin is Origin.REQUEST:
        raise RequestInvalid(
            next(iter(values)), "This is the endpoint of a 'webhook_url': only 'enabled' changes."
        )
    for name, value in values.items():
        setattr(endpoint, name, value)
    session.flush()
    _listen(session, account_id)
    return endpoint


def enable(session: Session, endpoint: Endpoint) -> None:
    """Begin anew, as if nothing had failed."""
    endpoint.disabled_at = endpoint.disabled_reason = None
    endpoint.failing_since = endpoint.retry_at = None
    endpoint.failures = 0
    session.flush()


def disable(session: Session, endpoint: Endpoint, reason: str) -> bool:
    """Send nothing more to it, and tell the account's other endpoints. False where it was disabled before. The
    caller has locked it (`lock`) before any of its deliveries.
    """
    disabled = session.scalar(
        update(Endpoint)
        .where(Endpoint.id == endpoint.id, Endpoint.disabled_at.is_(None))
        .values(disabled_at=func.now(), disabled_reason=reason)
        .returning(Endpoint)
        .execution_options(populate_existing=True, synchronize_session=False)
    )
    if disabled is None:
        return False
    pending = (Delivery.endpoint_id == endpoint.id, Delivery.state == DeliveryState.PENDING)
    session.execute(
        update(Delivery)
        .where(*pending)
        .values(state=DeliveryState.DISCARDED, ended_at=func.now(), leased_until=None)
        .execution_options(synchronize_session=False)
    )
    _tell_others(session, endpoint, reason)
    return True


def _tell_others(session: Session, endpoint: Endpoint, reason: str) -> None:
    owned = (Endpoint.account_id == endpoint.account_id, Endpoint.origin == Origin.REGISTERED)
    others = session.scalars(select(Endpoint).where(*owned, Endpoint.id != endpoint.id)).all()
    told = [other for other in others if catalogue.wants(other.events, catalogue.DISABLED)]
    if not told:
        return
    data = {
        "id": endpoint.id,
        "object": "webhook_endpoint",
        "status": "disabled",
        "sequence": messages.next_sequence(session, endpoint.id),
        "error": {"code": "webhook_endpoint_disabled", "message": messages.cut(reason)},
        "url": f"{settings().base_url}/v1/webhooks/endpoints/{endpoint.id}",
    }
    message = messages.compose(endpoint.account_id, catalogue.DISABLED, clock.now(), data)
    messages.store(session, [message], [messages.address(message.id, other) for other in told])


def drop(session: Session, account_id: str, endpoint_id: str) -> None:
    """Delete it with its secrets and deliveries. Raises `EndpointNotFound`."""
    _lock_account(session, account_id)
    get_endpoint(session, account_id, endpoint_id)
    session.execute(delete(Endpoint).where(Endpoint.id == endpoint_id))
    _listen(session, account_id)
