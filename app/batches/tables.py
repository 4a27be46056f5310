"""The tables of batches, of the lines that could not become jobs, and of what happened to a batch. The other
lines are jobs: `jobs.batch_id`, `jobs.line`, `jobs.custom_id`.
"""

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, LargeBinary, Numeric, Text, func, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.batches.states import TERMINAL_BATCHES, BatchStatus, OnInvalid
from app.db import Base
from app.ids import PrefixedId
from app.jobs.tables import Timestamp, quoted, text_enum
from config.queues import Window


class Batch(Base):
    """Counts and usage are of the end; while it runs they are counted (`app.batches.counting`). The input is
    read by its digest: it outlives its file by `blob_grace_seconds`, and is not needed once its lines are jobs.
    """

    __tablename__ = "batches"

    id: Mapped[str] = mapped_column(PrefixedId("batch"), primary_key=True)
    account_id: Mapped[str] = mapped_column(PrefixedId("acct"), ForeignKey("accounts.id"))
    key_id: Mapped[str | None] = mapped_column(PrefixedId("key"))
    status: Mapped[BatchStatus] = mapped_column(text_enum(BatchStatus))
    endpoint: Mapped[str] = mapped_column(Text)
    input_file_id: Mapped[str] = mapped_column(PrefixedId("file"))
    input_digest: Mapped[str] = mapped_column(Text)
    completion_window: Mapped[Window] = mapped_column(text_enum(Window))
    price_factor: Mapped[Decimal] = mapped_column(Numeric)
    on_invalid: Mapped[OnInvalid] = mapped_column(text_enum(OnInvalid), server_default=OnInvalid.FAIL)
    dry_run: Mapped[bool] = mapped_column(server_default="false")  # it ends when its lines are checked
    retry_of: Mapped[str | None] = mapped_column(PrefixedId("batch"))  # whose failed lines it runs again
    labels: Mapped[dict[str, str]] = mapped_column("metadata", JSONB, server_default="{}")
    idempotency_key: Mapped[str | None] = mapped_column(Text)
    request_hash: Mapped[bytes] = mapped_column(LargeBinary)
    webhook_url: Mapped[str | None] = mapped_column(Text)
    output_expires_after_seconds: Mapped[int | None]

    created_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
    expires_at: Mapped[datetime | None] = mapped_column(Timestamp)  # the end of its window
    in_progress_at: Mapped[datetime | None] = mapped_column(Timestamp)
    cancelling_at: Mapped[datetime | None] = mapped_column(Timestamp)
    finalizing_at: Mapped[datetime | None] = mapped_column(Timestamp)
    finished_at: Mapped[datetime | None] = mapped_column(Timestamp)

    model: Mapped[str | None] = mapped_column(Text)  # where all lines name the same
    total: Mapped[int] = mapped_column(server_default="0")  # lines, those that cannot be run included
    invalid: Mapped[int] = mapped_column(server_default="0")  # of them
    completed: Mapped[int] = mapped_column(server_default="0")
    failed: Mapped[int] = mapped_column(server_default="0")
    input_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    cached_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    output_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    reasoning_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    # Prompts as counted and the most that may be made, of all lines.
    prompt_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    reserved_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    cost: Mapped[Decimal | None] = mapped_column(Numeric)  # once ended; null where a model has no price
    estimate: Mapped[dict[str, Any] | None] = mapped_column(
        JSONB(none_as_null=True)
    )  # `app.batches.estimating`

    output_file_id: Mapped[str | None] = mapped_column(PrefixedId("file"))
    error_file_id: Mapped[str | None] = mapped_column(PrefixedId("file"))
    error_code: Mapped[str | None] = mapped_column(Text)  # why the whole batch failed
    error_message: Mapped[str | None] = mapped_column(Text)

    __table_args__ = (
        CheckConstraint(f"status IN ({quoted(BatchStatus)})", name="status_known"),
        CheckConstraint(f"completion_window IN ({quoted(Window)})", name="window_known"),
        CheckConstraint(f"on_invalid IN ({quoted(OnInvalid)})", name="on_invalid_known"),
        CheckConstraint(
            f"(finished_at IS NOT NULL) = (status IN ({quoted(TERMINAL_BATCHES)}))",
            name="finished_iff_terminal",
        ),
        CheckConstraint(
            "status NOT IN ('completed', 'expired', 'cancelled') OR dry_run OR completed + failed = total",
            name="every_line_counted",
        ),
        Index("batches_account", "account_id", "id"),
        Index("batches_active", "id", postgresql_where=text("finished_at IS NULL")),
        Index(
            "batches_idempotency",
            "account_id",
            "idempotency_key",
            unique=True,
            postgresql_where=text("idempotency_key IS NOT NULL"),
        ),
    )


class BatchFault(Base):
    """What is wrong with a line, or (as line 0) with the file."""

    __tablename__ = "batch_faults"

    batch_id: Mapped[str] = mapped_column(
        PrefixedId("batch"), ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True
    )
    line: Mapped[int] = mapped_column(primary_key=True)
    column: Mapped[int | None]  # from 1, in characters, where one can be named
    custom_id: Mapped[str | None] = mapped_column(Text)
    code: Mapped[str] = mapped_column(Text)
    message: Mapped[str] = mapped_column(Text)
    param: Mapped[str | None] = mapped_column(Text)


class BatchEvent(Base):
    """A change of a batch's status, or how far it is. Immutable but for `is_due`."""

    __tablename__ = "batch_events"

    batch_id: Mapped[str] = mapped_column(
        PrefixedId("batch"), ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True
    )
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    type: Mapped[str] = mapped_column(Text)
    data: Mapped[dict[str, Any]] = mapped_column(JSONB)
    created_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
    is_due: Mapped[bool] = mapped_column(server_default="false")  # to become webhooks

    __table_args__ = (
        Index("batch_events_due", "created_at", postgresql_where=text("is_due")),
        CheckConstraint("seq > 0", name="numbered"),
    )
