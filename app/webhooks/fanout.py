"""From the logs to deliveries: each due entry becomes a message and a delivery to every endpoint that wants it,
in the transaction that makes it due no more. At least once, never twice from here. It sends nothing.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.ids import new_id
from app.webhooks import catalogue, due, endpoints, messages
from app.webhooks.due import Due
from app.webhooks.tables import Delivery, Endpoint, Message, Origin


def fan_out(session: Session, limit: int) -> int:
    """Returns how many entries were due."""
    entries = due.take(session, limit)
    if not entries:
        return 0
    registered = _registered(session, {entry.account_id for entry in entries if entry.is_public})
    requested = _requested(session, entries)
    made: list[Message] = []
    addressed: list[Delivery] = []
    for entry in entries:
        told = _chosen(entry, registered.get(entry.account_id, ()))
        if entry.webhook_url is not None:
            endpoint = requested[entry.account_id, entry.webhook_url]
            _reopen(session, endpoint, entry)
            told.append((entry.words[0], endpoint))
        _tell(entry, told, made, addressed)
    messages.store(session, made, addressed)
    return len(entries)


Words = tuple[str, dict[str, Any]]


def _chosen(entry: Due, registered: Iterable[Endpoint]) -> list[tuple[Words, Endpoint]]:
    """The endpoints that want an entry; each is told once, under the first type that it wants."""
    if not entry.is_public:
        return []
    told = []
    for endpoint in registered:
        words = next((words for words in entry.words if catalogue.wants(endpoint.events, words[0])), None)
        if words is not None:
            told.append((words, endpoint))
    return told


def _tell(
    entry: Due, told: list[tuple[Words, Endpoint]], made: list[Message], addressed: list[Delivery]
) -> None:
    by_type: dict[str, Message] = {}
    for (event_type, data), endpoint in told:
        if event_type not in by_type:
            by_type[event_type] = messages.compose(entry.account_id, event_type, entry.created_at, data)
        addressed.append(messages.address(by_type[event_type].id, endpoint))
    made += by_type.values()


def _registered(session: Session, accounts: set[str]) -> dict[str, list[Endpoint]]:
    # Locked: whoever disables one waits, and then finds the deliveries made here.
    statement = (
        select(Endpoint)
        .where(Endpoint.account_id.in_(accounts), Endpoint.origin == Origin.REGISTERED)
        .order_by(Endpoint.id)
        .with_for_update(read=True)
    )
    found: dict[str, list[Endpoint]] = {}
    for endpoint in session.scalars(statement):
        found.setdefault(endpoint.account_id, []).append(endpoint)
    return found


def _requested(session: Session, entries: Sequence[Due]) -> dict[tuple[str, str], Endpoint]:
    """The endpoints of `webhook_url`s, made at first use."""
    # In one order, for two processes that make the same.
    wanted = sorted(
        {(entry.account_id, entry.webhook_url) for entry in entries if entry.webhook_url is not None}
    )
    if not wanted:
        return {}
    rows = [
        {"id": new_id("whe"), "account_id": account_id, "origin": Origin.REQUEST, "url": url}
        for account_id, url in wanted
    ]
    session.execute(insert(Endpoint).values(rows).on_conflict_do_nothing())
    statement = (
        select(Endpoint)
        .where(
            Endpoint.origin == Origin.REQUEST,
            Endpoint.account_id.in_({account_id for account_id, _ in wanted}),
            Endpoint.url.in_({url for _, url in wanted}),
        )
        .order_by(Endpoint.id)
        .with_for_update(key_share=True)
    )
    return {(endpoint.account_id, endpoint.url): endpoint for endpoint in session.scalars(statement)}


def _reopen(session: Session, endpoint: Endpoint, entry: Due) -> None:
    """Who names a URL after it was disabled wants it tried again."""
    if endpoint.disabled_at is not None and entry.asked_at > endpoint.disabled_at:
        endpoints.enable(session, endpoint)
