"""Batches and webhooks"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

SURFACES = "surface IN ('chat', 'completions', {more}'jobs', 'responses')"


def upgrade() -> None:
    op.create_table(
        "batches",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("account_id", sa.UUID(), nullable=False),
        sa.Column("key_id", sa.UUID(), nullable=True),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("input_file_id", sa.UUID(), nullable=False),
        sa.Column("input_digest", sa.Text(), nullable=False),
        sa.Column("completion_window", sa.String(length=32), nullable=False),
        sa.Column("price_factor", sa.Numeric(), nullable=False),
        sa.Column("on_invalid", sa.String(length=32), server_default="fail", nullable=False),
        sa.Column("dry_run", sa.Boolean(), server_default="false", nullable=False),
        sa.Column("retry_of", sa.UUID(), nullable=True),
        sa.Column("metadata", postgresql.JSONB(), server_default="{}", nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("request_hash", sa.LargeBinary(), nullable=False),
        sa.Column("webhook_url", sa.Text(), nullable=True),
        sa.Column("output_expires_after_seconds", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("in_progress_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancelling_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finalizing_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("total", sa.Integer(), server_default="0", nullable=False),
        sa.Column("invalid", sa.Integer(), server_default="0", nullable=False),
        sa.Column("completed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("failed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reserved_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cost", sa.Numeric(), nullable=True),
        sa.Column("estimate", postgresql.JSONB(), nullable=True),
        sa.Column("output_file_id", sa.UUID(), nullable=True),
        sa.Column("error_file_id", sa.UUID(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(finished_at IS NOT NULL) = (status IN ('cancelled', 'completed', 'expired', 'failed'))",
            name="finished_iff_terminal",
        ),
        sa.CheckConstraint("completion_window IN ('1h', '24h', '2h', '8h', 'soonest')", name="window_known"),
        sa.CheckConstraint("on_invalid IN ('fail', 'skip')", name="on_invalid_known"),
        sa.CheckConstraint(
            "status IN ('cancelled', 'cancelling', 'completed', 'expired', 'failed', 'finalizing', 'in_progress', 'validating')",
            name="status_known",
        ),
        sa.CheckConstraint(
            "status NOT IN ('completed', 'expired', 'cancelled') OR dry_run OR completed + failed = total",
            name="every_line_counted",
        ),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["accounts.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("batches_account", "batches", ["account_id", "id"], unique=False)
    op.create_index(
        "batches_active", "batches", ["id"], unique=False, postgresql_where=sa.text("finished_at IS NULL")
    )
    op.create_index(
        "batches_idempotency",
        "batches",
        ["account_id", "idempotency_key"],
        unique=True,
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("account_id", sa.UUID(), nullable=False),
        sa.Column("origin", sa.String(length=32), server_default="registered", nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("events", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.Column("failing_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("retry_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("origin IN ('registered', 'request')", name="origin_known"),
        sa.CheckConstraint("(disabled_at IS NULL) = (disabled_reason IS NULL)", name="reason_iff_disabled"),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["accounts.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("webhook_endpoints_account", "webhook_endpoints", ["account_id", "id"], unique=False)
    op.create_index(
        "webhook_endpoints_request",
        "webhook_endpoints",
        ["account_id", "url"],
        unique=True,
        postgresql_where=sa.text("origin = 'request'"),
    )
    op.create_table(
        "webhook_messages",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("account_id", sa.UUID(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["accounts.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("webhook_messages_account", "webhook_messages", ["account_id", "id"], unique=False)
    op.create_index("webhook_messages_subject", "webhook_messages", ["subject"], unique=False)
    op.create_table(
        "batch_events",
        sa.Column("batch_id", sa.UUID(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("data", postgresql.JSONB(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("is_due", sa.Boolean(), server_default="false", nullable=False),
        sa.CheckConstraint("seq > 0", name="numbered"),
        sa.ForeignKeyConstraint(["batch_id"], ["batches.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("batch_id", "seq"),
    )
    op.create_index(
        "batch_events_due", "batch_events", ["created_at"], unique=False, postgresql_where=sa.text("is_due")
    )
    op.create_table(
        "batch_faults",
        sa.Column("batch_id", sa.UUID(), nullable=False),
        sa.Column("line", sa.Integer(), nullable=False),
        sa.Column("column", sa.Integer(), nullable=True),
        sa.Column("custom_id", sa.Text(), nullable=True),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("param", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["batch_id"], ["batches.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("batch_id", "line"),
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("account_id", sa.UUID(), nullable=False),
        sa.Column("message_id", sa.UUID(), nullable=False),
        sa.Column("endpoint_id", sa.UUID(), nullable=False),
        sa.Column("state", sa.String(length=32), server_default="pending", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column(
            "next_attempt_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("leased_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(ended_at IS NULL) = (state = 'pending')", name="ended_iff_not_pending"),
        sa.CheckConstraint("state IN ('delivered', 'discarded', 'failed', 'pending')", name="state_known"),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["accounts.id"],
        ),
        sa.ForeignKeyConstraint(["endpoint_id"], ["webhook_endpoints.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["message_id"], ["webhook_messages.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_webhook_deliveries_message_id", "webhook_deliveries", ["message_id"], unique=False)
    op.create_index("webhook_deliveries_account", "webhook_deliveries", ["account_id", "id"], unique=False)
    op.create_index(
        "webhook_deliveries_due",
        "webhook_deliveries",
        ["endpoint_id", "next_attempt_at"],
        unique=False,
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_index("webhook_deliveries_endpoint", "webhook_deliveries", ["endpoint_id", "id"], unique=False)
    op.create_table(
        "webhook_secrets",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("account_id", sa.UUID(), nullable=False),
        sa.Column("endpoint_id", sa.UUID(), nullable=True),
        sa.Column("scheme", sa.String(length=32), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("scheme IN ('v1', 'v1a')", name="scheme_known"),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["accounts.id"],
        ),
        sa.ForeignKeyConstraint(["endpoint_id"], ["webhook_endpoints.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_webhook_secrets_endpoint_id", "webhook_secrets", ["endpoint_id"], unique=False)
    op.create_index(
        "webhook_secrets_account",
        "webhook_secrets",
        ["account_id"],
        unique=False,
        postgresql_where=sa.text("endpoint_id IS NULL"),
    )
    op.create_table(
        "webhook_attempts",
        sa.Column("delivery_id", sa.UUID(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("duration_ms", sa.Integer(), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("snippet", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["delivery_id"], ["webhook_deliveries.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("delivery_id", "number"),
    )
    op.add_column(
        "accounts", sa.Column("listens_to", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False)
    )
    op.add_column("job_events", sa.Column("is_due", sa.Boolean(), server_default="false", nullable=False))
    op.create_index(
        "job_events_due", "job_events", ["created_at"], unique=False, postgresql_where=sa.text("is_due")
    )
    op.add_column("jobs", sa.Column("webhook_url", sa.Text(), nullable=True))
    op.add_column("jobs", sa.Column("batch_id", sa.UUID(), nullable=True))
    op.add_column("jobs", sa.Column("line", sa.Integer(), nullable=True))
    op.add_column("jobs", sa.Column("custom_id", sa.Text(), nullable=True))
    op.create_index(
        "jobs_batch",
        "jobs",
        ["batch_id", "line"],
        unique=True,
        postgresql_where=sa.text("batch_id IS NOT NULL"),
    )
    _check("line_whole", "num_nonnulls(batch_id, line, custom_id) IN (0, 3)")
    op.drop_constraint("surface_known", "jobs")
    _check("surface_known", SURFACES.format(more="'messages', "))


def _check(name: str, condition: str) -> None:
    """On jobs. NOT VALID first: only the second step reads the table, and it lets writers through."""
    op.execute(f"ALTER TABLE jobs ADD CONSTRAINT {name} CHECK ({condition}) NOT VALID")
    op.execute(f"ALTER TABLE jobs VALIDATE CONSTRAINT {name}")


def downgrade() -> None:
    op.drop_constraint("surface_known", "jobs")
    _check("surface_known", SURFACES.format(more=""))
    for column in ("custom_id", "line", "batch_id", "webhook_url"):
        op.drop_column("jobs", column)
    op.drop_column("job_events", "is_due")
    op.drop_column("accounts", "listens_to")
    for table in (
        "webhook_attempts",
        "webhook_deliveries",
        "webhook_messages",
        "webhook_secrets",
        "webhook_endpoints",
        "batch_events",
        "batch_faults",
        "batches",
    ):
        op.drop_table(table)
