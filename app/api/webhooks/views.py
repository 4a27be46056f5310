"""Webhooks as clients see them: endpoints, secrets, deliveries, attempts, events. The shapes double as the
schemas of the OpenAPI document.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal

import orjson
from pydantic import BaseModel, Field

from app.webhooks import signing
from app.webhooks.queries import Told
from app.webhooks.tables import Attempt, DeliveryState, Endpoint, Message, Origin, Scheme, Secret


class WebhookSecret(BaseModel):
    id: str
    scheme: Scheme = Field(description="`v1`: HMAC-SHA256. `v1a`: ed25519.")
    hint: str | None = Field(description="Its end; null for ed25519.")
    public_key: str | None = Field(description="What verifies an ed25519 signature.")
    created_at: int
    expires_at: int | None = Field(description="Until when one that was rotated still signs, too.")


class WebhookEndpoint(BaseModel):
    id: str
    object: Literal["webhook_endpoint"] = "webhook_endpoint"
    created_at: int = Field(description="Unix seconds.")
    origin: Origin = Field(description="`request`: made for a `webhook_url`.")
    url: str
    description: str
    events: list[str] = Field(description="Types, groups of types like `batch.*`, or `*`.")
    enabled: bool
    disabled_at: int | None
    disabled_reason: str | None
    failing_since: int | None = Field(
        description="When the first of the failures came that no success followed."
    )
    failures: int = Field(description="Attempts that failed in a row.")
    secrets: list[WebhookSecret] = Field(
        description="What messages are signed with now, newest first; empty for a `webhook_url`."
    )


class WebhookEndpointWithSecret(WebhookEndpoint):
    secret: str | None = Field(
        description="Shown this once; null for ed25519, whose public key is in `secrets`."
    )


class WebhookSecrets(BaseModel):
    """Of an account, for what is sent to a `webhook_url`."""

    object: Literal["webhook_secrets"] = "webhook_secrets"
    secrets: list[WebhookSecret]


class WebhookSecretsWithSecret(WebhookSecrets):
    secret: str | None = Field(description="Shown this once; null for ed25519.")


class WebhookEndpointList(BaseModel):
    object: Literal["list"] = "list"
    data: list[WebhookEndpoint]
    first_id: str | None
    last_id: str | None
    has_more: bool


class WebhookEndpointDeleted(BaseModel):
    id: str
    object: Literal["webhook_endpoint.deleted"] = "webhook_endpoint.deleted"
    deleted: Literal[True] = True


class WebhookEventSummary(BaseModel):
    id: str = Field(description="The header `webhook-id`, the same in every delivery.")
    type: str
    subject: str = Field(description="The id of what it tells of.")
    sequence: int = Field(description="Of the subject: what comes later has a higher one.")


class WebhookAttempt(BaseModel):
    number: int
    started_at: float = Field(description="Unix seconds, to the millisecond.")
    duration_ms: int
    status_code: int | None = Field(description="Null where no answer came.")
    error: str | None
    snippet: str = Field(description="How the answer began.")


class WebhookDelivery(BaseModel):
    id: str
    object: Literal["webhook_delivery"] = "webhook_delivery"
    created_at: int
    endpoint_id: str
    url: str
    event: WebhookEventSummary
    state: DeliveryState
    attempts: int
    next_attempt_at: int | None = Field(description="Null unless it is pending.")
    ended_at: int | None
    last_attempt: WebhookAttempt | None


class WebhookDeliveryWithAttempts(WebhookDelivery):
    log: list[WebhookAttempt]


class WebhookDeliveryList(BaseModel):
    object: Literal["list"] = "list"
    data: list[WebhookDelivery]
    first_id: str | None
    last_id: str | None
    has_more: bool


class WebhookEvent(WebhookEventSummary):
    object: Literal["webhook_event"] = "webhook_event"
    created_at: int
    body: dict[str, Any] = Field(description="What is sent.")


class WebhookRedelivery(BaseModel):
    object: Literal["webhook_redelivery"] = "webhook_redelivery"
    count: int = Field(description="New deliveries.")
    has_more: bool = Field(description="Whether there are more than one request sends again.")


def endpoint_view(endpoint: Endpoint, secrets: Iterable[Secret]) -> dict[str, Any]:
    return {
        "id": endpoint.id,
        "object": "webhook_endpoint",
        "created_at": _seconds(endpoint.created_at),
        "origin": endpoint.origin,
        "url": endpoint.url,
        "description": endpoint.description,
        "events": endpoint.events,
        "enabled": endpoint.disabled_at is None,
        "disabled_at": _seconds(endpoint.disabled_at),
        "disabled_reason": endpoint.disabled_reason,
        "failing_since": _seconds(endpoint.failing_since),
        "failures": endpoint.failures,
        "secrets": [secret_view(secret) for secret in secrets],
    }


def secret_view(secret: Secret) -> dict[str, Any]:
    return {
        "id": secret.id,
        "scheme": secret.scheme,
        "hint": secret.secret[-4:] if secret.scheme is Scheme.HMAC else None,
        "public_key": signing.public_key(secret.secret),
        "created_at": _seconds(secret.created_at),
        "expires_at": _seconds(secret.expires_at),
    }


def shown_once(secret: Secret) -> str | None:
    """A private key stays here: whoever has it could sign."""
    return secret.secret if secret.scheme is Scheme.HMAC else None


def delivery_view(told: Told, attempts: Sequence[Attempt]) -> dict[str, Any]:
    delivery, message, endpoint = told
    is_pending = delivery.state is DeliveryState.PENDING
    return {
        "id": delivery.id,
        "object": "webhook_delivery",
        "created_at": _seconds(delivery.created_at),
        "endpoint_id": endpoint.id,
        "url": endpoint.url,
        "event": summary(message),
        "state": delivery.state,
        "attempts": delivery.attempts,
        "next_attempt_at": _seconds(delivery.next_attempt_at) if is_pending else None,
        "ended_at": _seconds(delivery.ended_at),
        "last_attempt": attempt_view(attempts[-1]) if attempts else None,
    }


def attempt_view(attempt: Attempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "started_at": round(attempt.started_at.timestamp(), 3),
        "duration_ms": attempt.duration_ms,
        "status_code": attempt.status_code,
        "error": attempt.error,
        "snippet": attempt.snippet,
    }


def summary(message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "type": message.type,
        "subject": message.subject,
        "sequence": message.sequence,
    }


def event_view(message: Message) -> dict[str, Any]:
    return {
        **summary(message),
        "object": "webhook_event",
        "created_at": _seconds(message.created_at),
        "body": orjson.loads(message.body),
    }


def page_of(shown: Sequence[dict[str, Any]], limit: int) -> dict[str, Any]:
    """One page of what was asked for with one more than `limit`."""
    page = shown[:limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(shown) > limit,
    }


def _seconds(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp())
