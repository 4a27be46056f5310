"""Which deliveries a sender takes in hand, and what becomes of them. No transaction is open while they are
sent: a lease says that one is in hand, and its outcome is written under it. Functions take the caller's session
and never commit.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from app.webhooks import breaker, endpoints, schedule
from app.webhooks.secrets import signing_secrets
from app.webhooks.sending import Answer, Letter, Outcome
from app.webhooks.tables import Attempt, Delivery, DeliveryState, Endpoint, Message
from config.settings import settings

# Beyond the deadline of an attempt: to have its outcome written.
LEASE_MARGIN_SECONDS: Final = 5.0
# Of all that a sender has in hand: no account with many receivers, all slow, holds the others.
ACCOUNT_SHARE: Final = 0.25

GONE: Final = "It answered 410: gone."
SILENT: Final = "Every attempt failed for {days:g} days."


@dataclass(frozen=True, slots=True)
class Claim:
    """A delivery in hand. `leased_until` is the fence."""

    delivery_id: str
    endpoint_id: str
    leased_until: datetime
    letter: Letter


# One sender at a time counts what is in hand and adds to it.
_LOCK: Final = text("SELECT pg_advisory_xact_lock(7305814)")

# A lease also moves `next_attempt_at` on, to its end: what is in hand is then found in a short range of the
# index, however many deliveries wait behind it. `waiting` hops from one endpoint with deliveries to the next.
_CLAIM: Final = text("""
    WITH RECURSIVE waiting (endpoint_id) AS (
        (SELECT endpoint_id FROM webhook_deliveries WHERE state = 'pending' ORDER BY endpoint_id LIMIT 1)
        UNION ALL
        SELECT (SELECT endpoint_id FROM webhook_deliveries
            WHERE state = 'pending' AND endpoint_id > waiting.endpoint_id ORDER BY endpoint_id LIMIT 1)
        FROM waiting WHERE endpoint_id IS NOT NULL
    ), counted AS (
        SELECT endpoint.id, endpoint.account_id, in_hand.count,
            endpoint.retry_at IS NULL OR endpoint.retry_at <= now() AS is_open,
            CASE WHEN endpoint.failures >= :tripped THEN 1 ELSE :width END AS width
        FROM waiting JOIN webhook_endpoints endpoint ON endpoint.id = waiting.endpoint_id,
        LATERAL (SELECT count(*) FROM webhook_deliveries
            WHERE endpoint_id = endpoint.id AND state = 'pending' AND leased_until > now()
                AND next_attempt_at > now() AND next_attempt_at <= now() + :lease) in_hand
        WHERE endpoint.disabled_at IS NULL
    ), shared AS (
        SELECT *, sum(count) OVER (PARTITION BY account_id) AS account_count FROM counted
    ), due AS (
        SELECT delivery.*, account_count
            + row_number() OVER (PARTITION BY account_id ORDER BY next_attempt_at, delivery.id) AS place
        FROM shared, LATERAL (SELECT id, next_attempt_at FROM webhook_deliveries
            WHERE endpoint_id = shared.id AND state = 'pending' AND next_attempt_at <= now()
            ORDER BY next_attempt_at, id LIMIT greatest(0, width - count)) delivery
        WHERE is_open
    ), chosen AS (
        SELECT id FROM due WHERE place <= :share ORDER BY place, next_attempt_at LIMIT :limit
    )
    UPDATE webhook_deliveries SET leased_until = now() + :lease, next_attempt_at = now() + :lease
    FROM chosen WHERE webhook_deliveries.id = chosen.id AND state = 'pending'
    RETURNING webhook_deliveries.id, leased_until
""").columns(id=Delivery.id.type, leased_until=Delivery.leased_until.type)


def claim(session: Session, limit: int) -> list[Claim]:
    """Take up to `limit` due deliveries in hand, a few of each endpoint and of each account."""
    if limit <= 0:
        return []
    session.execute(_LOCK)
    chosen = settings()
    values = {
        "tripped": breaker.TRIPPED_AFTER,
        "width": chosen.webhook_endpoint_concurrency,
        "share": max(chosen.webhook_endpoint_concurrency, int(chosen.webhook_concurrency * ACCOUNT_SHARE)),
        "lease": timedelta(seconds=chosen.webhook_timeout_seconds + LEASE_MARGIN_SECONDS),
        "limit": limit,
    }
    leases = {row.id: row.leased_until for row in session.execute(_CLAIM, values)}
    return _claims(session, leases) if leases else []


def _claims(session: Session, leases: Mapping[str, datetime]) -> list[Claim]:
    rows = session.execute(
        select(Delivery, Message, Endpoint)
        .join(Message, Message.id == Delivery.message_id)
        .join(Endpoint, Endpoint.id == Delivery.endpoint_id)
        .where(Delivery.id.in_(leases))
    ).all()
    secrets = {endpoint: tuple(signing_secrets(session, endpoint)) for endpoint in {row[2] for row in rows}}
    return [
        Claim(
            delivery.id,
            endpoint.id,
            leases[delivery.id],
            Letter(endpoint.url, message.id, message.body, secrets[endpoint]),
        )
        for delivery, message, endpoint in rows
    ]


def settle(session: Session, outcomes: Sequence[tuple[Claim, Outcome]]) -> None:
    """Write what became of each. One whose lease is over is another's: it is left alone."""
    now = session.execute(select(func.now())).scalar_one()
    found = _lock_endpoints(session, {claim.endpoint_id for claim, _ in outcomes})
    held = _lock_deliveries(session, [claim for claim, _ in outcomes])
    for claim, outcome in outcomes:
        if claim.delivery_id in held:
            session.add(_record(held[claim.delivery_id], outcome, now))
            _note(found[claim.endpoint_id], outcome.answer, now)
    session.flush()
    for claim, outcome in outcomes:
        reason = _reason_to_disable(found.get(claim.endpoint_id), outcome.answer, now)
        if claim.delivery_id in held and reason is not None:
            endpoints.disable(session, found[claim.endpoint_id], reason)


def _lock_endpoints(session: Session, ids: Iterable[str]) -> dict[str, Endpoint]:
    # Before their deliveries, and in the order in which the fan-out locks them.
    statement = select(Endpoint).where(Endpoint.id.in_(ids)).order_by(Endpoint.origin, Endpoint.id)
    return {endpoint.id: endpoint for endpoint in session.scalars(statement.with_for_update(key_share=True))}


def _lock_deliveries(session: Session, claims: Sequence[Claim]) -> dict[str, Delivery]:
    """Those that are still in the hands that took them."""
    leases = {claim.delivery_id: claim.leased_until for claim in claims}
    statement = select(Delivery).where(Delivery.id.in_(leases), Delivery.state == DeliveryState.PENDING)
    locked = session.scalars(statement.order_by(Delivery.id).with_for_update(key_share=True))
    return {delivery.id: delivery for delivery in locked if delivery.leased_until == leases[delivery.id]}


def _record(delivery: Delivery, outcome: Outcome, now: datetime) -> Attempt:
    """The attempt; the delivery has ended, or is due again."""
    answer = outcome.answer
    delivery.attempts += 1
    delivery.leased_until = None
    delay = schedule.next_delay_seconds(delivery.attempts, answer.retry_after_seconds, random.uniform)
    if answer.error is None or answer.is_gone or delay is None:
        delivery.state = DeliveryState.DELIVERED if answer.error is None else DeliveryState.FAILED
        delivery.ended_at = delivery.next_attempt_at = now
    else:
        delivery.next_attempt_at = now + timedelta(seconds=delay)
    return Attempt(
        delivery_id=delivery.id,
        number=delivery.attempts,
        started_at=outcome.started_at,
        duration_ms=outcome.duration_ms,
        status_code=answer.status_code,
        error=answer.error,
        snippet=answer.snippet,
    )


def _note(endpoint: Endpoint, answer: Answer, now: datetime) -> None:
    if answer.error is None:
        endpoint.failures, endpoint.failing_since, endpoint.retry_at = 0, None, None
        return
    endpoint.failures += 1
    endpoint.failing_since = endpoint.failing_since or now
    pause = breaker.pause_seconds(endpoint.failures, answer.retry_after_seconds)
    endpoint.retry_at = now + timedelta(seconds=pause) if pause else None


def _reason_to_disable(endpoint: Endpoint | None, answer: Answer, now: datetime) -> str | None:
    if answer.is_gone:
        return GONE
    allowed = settings().webhook_disable_after_seconds
    since = endpoint.failing_since if endpoint else None
    if since is None or (now - since).total_seconds() < allowed:
        return None
    return SILENT.format(days=round(allowed / 86_400, 3))


def release(session: Session, claims: Sequence[Claim]) -> None:
    """Give back what was not sent to its end: another sends it at once, perhaps a second time."""
    for held in _lock_deliveries(session, claims).values():
        held.leased_until = None
        held.next_attempt_at = func.now()
