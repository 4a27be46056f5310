"""The tables of jobs, their log and what they used, with invariants that the database itself refuses to break.

The log of a job is `job_events` (status changes, rewinds) and `job_segments` (output) in one sequence: each
row covers `first_seq..seq`, and the ranges of a job neither overlap nor leave holes.
"""

from array import array
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    DateTime,
    Dialect,
    Enum,
    ForeignKey,
    Index,
    LargeBinary,
    Numeric,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from app.db import Base
from app.ids import PrefixedId
from app.jobs.states import TERMINAL, Status
from config.queues import Tier, Window

Timestamp = DateTime(timezone=True)


def text_enum(kind: type[StrEnum]) -> Enum:
    """A text column whose values are those of `kind`; a CHECK of its table refuses others."""
    return Enum(kind, native_enum=False, length=32, values_callable=lambda k: [member.value for member in k])


def quoted(values: Iterable[str]) -> str:
    return ", ".join(f"'{value}'" for value in sorted(values))


class Surface(StrEnum):
    """Which API a job was submitted through, and is spoken of in."""

    JOBS = "jobs"
    RESPONSES = "responses"
    CHAT = "chat"
    COMPLETIONS = "completions"
    MESSAGES = "messages"  # Anthropic's


class PackedInts(TypeDecorator[list[int]]):
    """Integers below 2**31 as little-endian int32: four bytes a token id, and `octet_length / 4` counts."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: list[int] | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002 - SQLAlchemy's signature
        return None if value is None else pack_ints(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> list[int] | None:  # noqa: ARG002 - as above
        return None if value is None else unpack_ints(value)


def pack_ints(values: list[int]) -> bytes:
    return array("i", values).tobytes()


def unpack_ints(packed: bytes) -> list[int]:
    return list(array("i", packed))


class Job(Base):
    __tablename__ = "jobs"

    id: Mapped[str] = mapped_column(PrefixedId("job"), primary_key=True)
    account_id: Mapped[str] = mapped_column(PrefixedId("acct"), ForeignKey("accounts.id"))
    key_id: Mapped[str | None] = mapped_column(PrefixedId("key"))  # that it was submitted with
    kind: Mapped[str] = mapped_column(Text)
    model: Mapped[str] = mapped_column(Text)
    tier: Mapped[Tier] = mapped_column(text_enum(Tier))
    status: Mapped[Status] = mapped_column(text_enum(Status))
    request: Mapped[dict[str, Any]] = mapped_column(JSONB)
    labels: Mapped[dict[str, str]] = mapped_column("metadata", JSONB)
    idempotency_key: Mapped[str | None] = mapped_column(Text)
    request_hash: Mapped[bytes] = mapped_column(LargeBinary)
    surface: Mapped[Surface] = mapped_column(text_enum(Surface), server_default=Surface.JOBS)
    echo: Mapped[dict[str, Any] | None] = mapped_column(
        JSONB(none_as_null=True)
    )  # what its surface says of it again
    is_stored: Mapped[bool] = mapped_column(server_default="true")  # else it goes soon after its end
    webhook_url: Mapped[str | None] = mapped_column(Text)  # told of its end
    # A line of a batch (`app.batches`): its number there, from 1, and its name.
    batch_id: Mapped[str | None] = mapped_column(PrefixedId("batch"))
    line: Mapped[int | None]
    custom_id: Mapped[str | None] = mapped_column(Text)

    attempt: Mapped[int] = mapped_column(server_default="0")
    lost_attempts: Mapped[int] = mapped_column(server_default="0")  # in a row, without progress
    lease_id: Mapped[str | None] = mapped_column(UUID(as_uuid=False))
    worker_id: Mapped[str | None] = mapped_column(Text)
    lease_expires_at: Mapped[datetime | None] = mapped_column(Timestamp)
    available_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
    cancel_requested_at: Mapped[datetime | None] = mapped_column(Timestamp)

    created_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
    expires_at: Mapped[datetime | None] = mapped_column(Timestamp)  # must have started by then
    started_at: Mapped[datetime | None] = mapped_column(Timestamp)  # the first claim
    claimed_at: Mapped[datetime | None] = mapped_column(Timestamp)  # the last one
    first_token_at: Mapped[datetime | None] = mapped_column(Timestamp)
    deadline_at: Mapped[datetime | None] = mapped_column(Timestamp)  # started_at + timeouts.total_seconds
    finished_at: Mapped[datetime | None] = mapped_column(Timestamp)

    # The line. Within an account the earliest `order_at` goes first.
    session_id: Mapped[str | None] = mapped_column(Text)
    completion_window: Mapped[Window] = mapped_column(text_enum(Window), server_default=Window.SOONEST)
    due_at: Mapped[datetime | None] = mapped_column(Timestamp)  # the end of the completion window
    price_factor: Mapped[Decimal] = mapped_column(Numeric, server_default="1")  # agreed at submission
    order_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
    prompt_tokens: Mapped[int] = mapped_column(server_default="0")  # as counted at admission
    reserved_tokens: Mapped[int] = mapped_column(server_default="0")  # the prompt's and the most it may make
    is_long: Mapped[bool] = mapped_column(server_default="false")  # a prompt that only some slots take
    placed_on: Mapped[str | None] = mapped_column(Text)  # the worker that was rung
    rung_at: Mapped[datetime | None] = mapped_column(Timestamp)
    charged_tokens: Mapped[int] = mapped_column(server_default="0")  # to its account's share, in advance
    is_preemptible: Mapped[bool] = mapped_column(server_default="true")  # counts for batch jobs alone
    preemptions: Mapped[int] = mapped_column(server_default="0")
    estimated_start_at: Mapped[datetime | None] = mapped_column(Timestamp)  # as foretold at submission

    # Output is the segments after this: a restart (structured output) writes an `output.rewind` and sets it.
    output_start_seq: Mapped[int] = mapped_column(BigInteger, server_default="0")
    input_tokens: Mapped[int] = mapped_column(server_default="0")
    cached_tokens: Mapped[int] = mapped_column(server_default="0")
    output_tokens: Mapped[int] = mapped_column(server_default="0")
    error_code: Mapped[str | None] = mapped_column(Text)
    error_message: Mapped[str | None] = mapped_column(Text)
    incomplete_reason: Mapped[str | None] = mapped_column(Text)

    __table_args__ = (
        CheckConstraint("kind IN ('generation')", name="kind_known"),
        CheckConstraint(f"surface IN ({quoted(Surface)})", name="surface_known"),
        CheckConstraint(f"tier IN ({quoted(Tier)})", name="tier_known"),
        CheckConstraint(f"status IN ({quoted(Status)})", name="status_known"),
        CheckConstraint(
            f"(finished_at IS NOT NULL) = (status IN ({quoted(TERMINAL)}))", name="finished_iff_terminal"
        ),
        CheckConstraint(
            "num_nonnulls(lease_id, worker_id, lease_expires_at)"
            " = CASE status WHEN 'in_progress' THEN 3 ELSE 0 END",
            name="leased_iff_in_progress",
        ),
        CheckConstraint(
            "num_nonnulls(error_code, error_message) = CASE status WHEN 'failed' THEN 2 ELSE 0 END",
            name="error_iff_failed",
        ),
        CheckConstraint(
            "(incomplete_reason IS NOT NULL) = (status = 'incomplete')", name="reason_iff_incomplete"
        ),
        CheckConstraint("status <> 'in_progress' OR started_at IS NOT NULL", name="started_if_in_progress"),
        CheckConstraint("status <> 'expired' OR started_at IS NULL", name="expired_never_started"),
        CheckConstraint("num_nonnulls(batch_id, line, custom_id) IN (0, 3)", name="line_whole"),
        Index("jobs_account", "account_id", "id"),
        Index("jobs_batch", "batch_id", "line", unique=True, postgresql_where=text("batch_id IS NOT NULL")),
        Index(
            "jobs_idempotency",
            "account_id",
            "idempotency_key",
            unique=True,
            postgresql_where=text("idempotency_key IS NOT NULL"),
        ),
        CheckConstraint(f"completion_window IN ({quoted(Window)})", name="window_known"),
        CheckConstraint("placed_on IS NULL OR status = 'queued'", name="placed_only_while_queued"),
        CheckConstraint("prompt_tokens >= 0 AND reserved_tokens >= 0", name="tokens_counted"),
        # The line, in the order in which the dispatcher reads it (`app.line.waiting`).
        Index(
            "jobs_line",
            "model",
            "tier",
            "is_long",
            "account_id",
            "order_at",
            "id",
            postgresql_where=text("status = 'queued'"),
        ),
        Index("jobs_placed", "placed_on", postgresql_where=text("placed_on IS NOT NULL")),
        Index(
            "jobs_expiring",
            "expires_at",
            postgresql_where=text("status = 'queued' AND started_at IS NULL AND expires_at IS NOT NULL"),
        ),
        Index(
            "jobs_overdue",
            "deadline_at",
            postgresql_where=text("status = 'queued' AND deadline_at IS NOT NULL"),
        ),
        Index("jobs_session", "account_id", "session_id", postgresql_where=text("session_id IS NOT NULL")),
        # Not on lease_expires_at: heartbeats would then rewrite the index at every beat.
        Index("jobs_in_progress", "id", postgresql_where=text("status = 'in_progress'")),
        Index("jobs_lease", "lease_id", unique=True, postgresql_where=text("lease_id IS NOT NULL")),
        Index("jobs_finished", "finished_at", postgresql_where=text("finished_at IS NOT NULL")),
        Index(
            "jobs_unstored",
            "finished_at",
            postgresql_where=text("NOT is_stored AND finished_at IS NOT NULL"),
        ),
        {"postgresql_with": {"fillfactor": "80", "autovacuum_vacuum_scale_factor": "0.02"}},
    )


class JobEvent(Base):
    """A status change or a rewind. Immutable but for `is_due`."""

    __tablename__ = "job_events"

    job_id: Mapped[str] = mapped_column(PrefixedId("job"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    first_seq: Mapped[int] = mapped_column(BigInteger)
    type: Mapped[str] = mapped_column(Text)
    data: Mapped[dict[str, Any]] = mapped_column(JSONB)
    created_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
    is_due: Mapped[bool] = mapped_column(server_default="false")  # to become webhooks

    __table_args__ = (
        CheckConstraint("0 < first_seq AND first_seq <= seq", name="range_ordered"),
        Index("job_events_due", "created_at", postgresql_where=text("is_due")),
    )


class JobSegment(Base):
    """Coalesced output. `ends[i]` is where the text of `first_seq + i` ends, in characters of `text`;
    `char_offset` is where `text` starts in the whole output. Immutable.
    """

    __tablename__ = "job_segments"

    job_id: Mapped[str] = mapped_column(PrefixedId("job"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    first_seq: Mapped[int] = mapped_column(BigInteger)
    attempt: Mapped[int]
    char_offset: Mapped[int]
    text: Mapped[str] = mapped_column(Text)
    ends: Mapped[list[int]] = mapped_column(PackedInts)
    token_ids: Mapped[list[int]] = mapped_column(PackedInts)
    logprobs: Mapped[list[Any] | None] = mapped_column(JSONB)  # one list of token logprobs a seq
    # Where the model's markup is parsed (tool calls, reasoning): a list of parts a seq, see `app.jobs.parts`.
    parts: Mapped[list[Any] | None] = mapped_column(JSONB(none_as_null=True))
    created_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())

    __table_args__ = (
        CheckConstraint("0 < first_seq AND first_seq <= seq", name="range_ordered"),
        CheckConstraint("octet_length(ends) = 4 * (seq - first_seq + 1)", name="an_end_each"),
        {"postgresql_with": {"autovacuum_vacuum_insert_scale_factor": "0.1"}},
    )


class Usage(Base):
    """The ledger: what one attempt at a job used. Exactly one row of an ended job `is_final`; it also says what
    was reserved and what the whole job came to. Rows outlive their jobs. The dispatcher books them: see
    `app.line.booking`.
    """

    __tablename__ = "usage"

    job_id: Mapped[str] = mapped_column(PrefixedId("job"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)  # 0: it never ran
    account_id: Mapped[str] = mapped_column(PrefixedId("acct"))
    key_id: Mapped[str | None] = mapped_column(PrefixedId("key"))
    model: Mapped[str] = mapped_column(Text)
    tier: Mapped[Tier] = mapped_column(text_enum(Tier))
    completion_window: Mapped[Window] = mapped_column(text_enum(Window))
    price_factor: Mapped[Decimal] = mapped_column(Numeric)
    input_tokens: Mapped[int]
    cached_tokens: Mapped[int]
    output_tokens: Mapped[int]

    is_final: Mapped[bool]
    reserved_tokens: Mapped[int]
    settled_tokens: Mapped[int | None]  # all attempts' input and output, once final
    charged_tokens: Mapped[int] = mapped_column(server_default="0")  # given back to the share when it ends
    run_seconds: Mapped[float]  # from claim to end
    wait_seconds: Mapped[float | None]  # from submission to the first claim
    estimated_wait_seconds: Mapped[float | None]
    created_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
    settled_at: Mapped[datetime | None] = mapped_column(Timestamp)

    is_booked: Mapped[bool] = mapped_column(server_default="false")
    booked_tokens: Mapped[int] = mapped_column(server_default="0")  # what the share was charged for this row

    __table_args__ = (
        CheckConstraint("(settled_tokens IS NOT NULL) = is_final", name="settled_iff_final"),
        CheckConstraint("(settled_at IS NOT NULL) = is_final", name="dated_iff_final"),
        CheckConstraint("least(input_tokens, cached_tokens, output_tokens) >= 0", name="usage_counted"),
        Index("usage_final", "job_id", unique=True, postgresql_where=text("is_final")),
        Index("usage_unbooked", "created_at", postgresql_where=text("NOT is_booked")),
        Index("usage_settled", "settled_at", postgresql_where=text("is_final")),
        Index("usage_account", "account_id", "created_at"),
    )


class Worker(Base):
    """A worker process and what it serves; `seen_at` is its last heartbeat."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    model: Mapped[str] = mapped_column(Text)
    slots: Mapped[int]
    running_interactive: Mapped[int] = mapped_column(server_default="0")
    running_batch: Mapped[int] = mapped_column(server_default="0")
    tokens_in_flight: Mapped[int] = mapped_column(server_default="0")  # prompts and output so far
    kv_use: Mapped[float | None]  # 0..1, where the engine tells
    draining: Mapped[bool] = mapped_column(server_default="false")
    started_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
    seen_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
