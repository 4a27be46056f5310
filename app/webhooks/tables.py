"""The tables of webhooks: endpoints and their secrets, messages, and their deliveries with each attempt."""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, Text, func, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from app.db import Base
from app.ids import PrefixedId
from app.jobs.tables import Timestamp, quoted, text_enum


class Scheme(StrEnum):
    """How a message is signed."""

    HMAC = "v1"  # HMAC-SHA256 with a secret that both sides have
    ED25519 = "v1a"  # a signature that the public key verifies


class Origin(StrEnum):
    REGISTERED = "registered"
    REQUEST = "request"  # a `webhook_url`: signed with the account's secret, told of its own jobs alone


class DeliveryState(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"  # no attempt is left
    DISCARDED = "discarded"  # its endpoint was disabled or deleted


class Endpoint(Base):
    __tablename__ = "webhook_endpoints"

    id: Mapped[str] = mapped_column(PrefixedId("whe"), primary_key=True)
    account_id: Mapped[str] = mapped_column(PrefixedId("acct"), ForeignKey("accounts.id"))
    origin: Mapped[Origin] = mapped_column(text_enum(Origin), server_default=Origin.REGISTERED)
    url: Mapped[str] = mapped_column(Text)
    description: Mapped[str] = mapped_column(Text, server_default="")
    events: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default="{}")  # types; empty for a request's
    created_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
    disabled_at: Mapped[datetime | None] = mapped_column(Timestamp)
    disabled_reason: Mapped[str | None] = mapped_column(Text)
    failing_since: Mapped[datetime | None] = mapped_column(Timestamp)  # no success since the first failure
    failures: Mapped[int] = mapped_column(server_default="0")  # in a row
    retry_at: Mapped[datetime | None] = mapped_column(Timestamp)  # its breaker is open until then

    __table_args__ = (
        CheckConstraint(f"origin IN ({quoted(Origin)})", name="origin_known"),
        CheckConstraint("(disabled_at IS NULL) = (disabled_reason IS NULL)", name="reason_iff_disabled"),
        Index("webhook_endpoints_account", "account_id", "id"),
        Index(
            "webhook_endpoints_request",
            "account_id",
            "url",
            unique=True,
            postgresql_where=text("origin = 'request'"),
        ),
    )


class Secret(Base):
    """What messages are signed with: an endpoint's or, without one, the account's for every `webhook_url`. One
    that was rotated signs beside its successor until it expires.
    """

    __tablename__ = "webhook_secrets"

    id: Mapped[str] = mapped_column(PrefixedId("whs"), primary_key=True)
    account_id: Mapped[str] = mapped_column(PrefixedId("acct"), ForeignKey("accounts.id"))
    endpoint_id: Mapped[str | None] = mapped_column(
        PrefixedId("whe"), ForeignKey("webhook_endpoints.id", ondelete="CASCADE"), index=True
    )
    scheme: Mapped[Scheme] = mapped_column(text_enum(Scheme))
    secret: Mapped[str] = mapped_column(Text)  # `whsec_…`, or `whsk_…` for ed25519
    created_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
    expires_at: Mapped[datetime | None] = mapped_column(Timestamp)

    __table_args__ = (
        CheckConstraint(f"scheme IN ({quoted(Scheme)})", name="scheme_known"),
        Index("webhook_secrets_account", "account_id", postgresql_where=text("endpoint_id IS NULL")),
    )


class Message(Base):
    """One event as it is told; `id` is its webhook-id, constant over all deliveries, `body` what is signed."""

    __tablename__ = "webhook_messages"

    id: Mapped[str] = mapped_column(PrefixedId("evt"), primary_key=True)
    account_id: Mapped[str] = mapped_column(PrefixedId("acct"), ForeignKey("accounts.id"))
    type: Mapped[str] = mapped_column(Text)
    subject: Mapped[str] = mapped_column(Text)  # the id of the job, response, batch or endpoint
    sequence: Mapped[int] = mapped_column(BigInteger)  # in the subject's log
    body: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())

    __table_args__ = (
        Index("webhook_messages_account", "account_id", "id"),
        Index("webhook_messages_subject", "subject"),
    )


class Delivery(Base):
    """A message on its way to an endpoint. `leased_until` says that a sender has it in hand."""

    __tablename__ = "webhook_deliveries"

    id: Mapped[str] = mapped_column(PrefixedId("dlv"), primary_key=True)
    account_id: Mapped[str] = mapped_column(PrefixedId("acct"), ForeignKey("accounts.id"))
    message_id: Mapped[str] = mapped_column(
        PrefixedId("evt"), ForeignKey("webhook_messages.id", ondelete="CASCADE"), index=True
    )
    endpoint_id: Mapped[str] = mapped_column(
        PrefixedId("whe"), ForeignKey("webhook_endpoints.id", ondelete="CASCADE")
    )
    state: Mapped[DeliveryState] = mapped_column(text_enum(DeliveryState), server_default=DeliveryState.PENDING)
    attempts: Mapped[int] = mapped_column(server_default="0")
    next_attempt_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
    leased_until: Mapped[datetime | None] = mapped_column(Timestamp)
    created_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
    ended_at: Mapped[datetime | None] = mapped_column(Timestamp)

    __table_args__ = (
        CheckConstraint(f"state IN ({quoted(DeliveryState)})", name="state_known"),
        CheckConstraint("(ended_at IS NULL) = (state = 'pending')", name="ended_iff_not_pending"),
        Index(
            "webhook_deliveries_due",
            "endpoint_id",
            "next_attempt_at",
            postgresql_where=text("state = 'pending'"),
        ),
        Index("webhook_deliveries_endpoint", "endpoint_id", "id"),
        Index("webhook_deliveries_account", "account_id", "id"),
    )


class Attempt(Base):
    """One try at a delivery; `status_code` is null where no answer came, `snippet` the beginning of it."""

    __tablename__ = "webhook_attempts"

    delivery_id: Mapped[str] = mapped_column(
        PrefixedId("dlv"), ForeignKey("webhook_deliveries.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True)
    started_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
    duration_ms: Mapped[int]
    status_code: Mapped[int | None]
    error: Mapped[str | None] = mapped_column(Text)
    snippet: Mapped[str] = mapped_column(Text, server_default="")
