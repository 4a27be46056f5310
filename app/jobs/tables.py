"""The tables of jobs and their log, with the invariants that the database itself refuses to break.

The log of a job is `job_events` (status changes, rewinds) and `job_segments` (output) in one sequence: each
row covers `first_seq..seq`, and the ranges of a job neither overlap nor leave holes.
"""

from array import array
from collections.abc import Iterable
from datetime import datetime
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
from config.queues import Tier

Timestamp = DateTime(timezone=True)


def text_enum(kind: type[StrEnum]) -> Enum:
    """A text column whose values are those of `kind`; a CHECK of its table refuses others."""
    return Enum(kind, native_enum=False, length=32, values_callable=lambda k: [member.value for member in k])


def quoted(values: Iterable[str]) -> str:
    return ", ".join(f"'{value}'" for value in sorted(values))


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
    kind: Mapped[str] = mapped_column(Text)
    model: Mapped[str] = mapped_column(Text)
    tier: Mapped[Tier] = mapped_column(text_enum(Tier))
    status: Mapped[Status] = mapped_column(text_enum(Status))
    request: Mapped[dict[str, Any]] = mapped_column(JSONB)
    labels: Mapped[dict[str, str]] = mapped_column("metadata", JSONB)
    idempotency_key: Mapped[str | None] = mapped_column(Text)
    request_hash: Mapped[bytes] = mapped_column(LargeBinary)

    attempt: Mapped[int] = mapped_column(server_default="0")
    lost_attempts: Mapped[int] = mapped_column(server_default="0")  # in a row, without progress
    lease_id: Mapped[str | None] = mapped_column(UUID(as_uuid=False))
    worker_id: Mapped[str | None] = mapped_column(Text)
    lease_expires_at: Mapped[datetime | None] = mapped_column(Timestamp)
    available_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
    rung_at: Mapped[datetime | None] = mapped_column(Timestamp)
    cancel_requested_at: Mapped[datetime | None] = mapped_column(Timestamp)

    created_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
    expires_at: Mapped[datetime | None] = mapped_column(Timestamp)  # must have started by then
    started_at: Mapped[datetime | None] = mapped_column(Timestamp)  # the first claim
    first_token_at: Mapped[datetime | None] = mapped_column(Timestamp)
    deadline_at: Mapped[datetime | None] = mapped_column(Timestamp)  # started_at + timeouts.total_seconds
    finished_at: Mapped[datetime | None] = mapped_column(Timestamp)

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
        Index("jobs_account", "account_id", "id"),
        Index(
            "jobs_idempotency",
            "account_id",
            "idempotency_key",
            unique=True,
            postgresql_where=text("idempotency_key IS NOT NULL"),
        ),
        Index("jobs_queued", "model", "tier", "available_at", postgresql_where=text("status = 'queued'")),
        # Not on lease_expires_at: heartbeats would then rewrite the index at every beat.
        Index("jobs_in_progress", "id", postgresql_where=text("status = 'in_progress'")),
        Index("jobs_finished", "finished_at", postgresql_where=text("finished_at IS NOT NULL")),
        {"postgresql_with": {"fillfactor": "80", "autovacuum_vacuum_scale_factor": "0.02"}},
    )


class JobEvent(Base):
    """A status change or a rewind. Immutable."""

    __tablename__ = "job_events"

    job_id: Mapped[str] = mapped_column(PrefixedId("job"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    first_seq: Mapped[int] = mapped_column(BigInteger)
    type: Mapped[str] = mapped_column(Text)
    data: Mapped[dict[str, Any]] = mapped_column(JSONB)
    created_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())

    __table_args__ = (CheckConstraint("0 < first_seq AND first_seq <= seq", name="range_ordered"),)


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
    created_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())

    __table_args__ = (
        CheckConstraint("0 < first_seq AND first_seq <= seq", name="range_ordered"),
        CheckConstraint("octet_length(ends) = 4 * (seq - first_seq + 1)", name="an_end_each"),
        {"postgresql_with": {"autovacuum_vacuum_insert_scale_factor": "0.1"}},
    )


class Worker(Base):
    """A worker process and what it serves; `seen_at` is its last heartbeat."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    model: Mapped[str] = mapped_column(Text)
    slots: Mapped[int]
    running: Mapped[int] = mapped_column(server_default="0")
    draining: Mapped[bool] = mapped_column(server_default="false")
    started_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
    seen_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
