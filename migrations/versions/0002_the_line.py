"""The line: windows, shares, the ledger, limits"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "lines",
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("tier", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=32), server_default="open", nullable=False),
        sa.Column("virtual_clock", sa.Double(), server_default="0", nullable=False),
        sa.Column("measured", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('draining', 'open', 'paused')", name="state_known"),
        sa.CheckConstraint("tier IN ('batch', 'interactive')", name="tier_known"),
        sa.PrimaryKeyConstraint("model", "tier"),
    )
    op.create_table(
        "shares",
        sa.Column("account_id", sa.UUID(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("tier", sa.String(length=32), nullable=False),
        sa.Column("virtual_tokens", sa.Double(), server_default="0", nullable=False),
        sa.Column("is_active", sa.Boolean(), server_default="false", nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("account_id", "model", "tier"),
    )
    op.create_table(
        "usage",
        sa.Column("job_id", sa.UUID(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.UUID(), nullable=False),
        sa.Column("key_id", sa.UUID(), nullable=True),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("tier", sa.String(length=32), nullable=False),
        sa.Column("completion_window", sa.String(length=32), nullable=False),
        sa.Column("price_factor", sa.Numeric(), nullable=False),
        sa.Column("input_tokens", sa.Integer(), nullable=False),
        sa.Column("cached_tokens", sa.Integer(), nullable=False),
        sa.Column("output_tokens", sa.Integer(), nullable=False),
        sa.Column("is_final", sa.Boolean(), nullable=False),
        sa.Column("reserved_tokens", sa.Integer(), nullable=False),
        sa.Column("settled_tokens", sa.Integer(), nullable=True),
        sa.Column("charged_tokens", sa.Integer(), server_default="0", nullable=False),
        sa.Column("run_seconds", sa.Double(), nullable=False),
        sa.Column("wait_seconds", sa.Double(), nullable=True),
        sa.Column("estimated_wait_seconds", sa.Double(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("is_booked", sa.Boolean(), server_default="false", nullable=False),
        sa.Column("booked_tokens", sa.Integer(), server_default="0", nullable=False),
        sa.CheckConstraint("(settled_at IS NOT NULL) = is_final", name="dated_iff_final"),
        sa.CheckConstraint("(settled_tokens IS NOT NULL) = is_final", name="settled_iff_final"),
        sa.CheckConstraint("least(input_tokens, cached_tokens, output_tokens) >= 0", name="usage_counted"),
        sa.PrimaryKeyConstraint("job_id", "attempt"),
    )
    op.create_index("usage_account", "usage", ["account_id", "created_at"], unique=False)
    op.create_index("usage_final", "usage", ["job_id"], unique=True, postgresql_where=sa.text("is_final"))
    op.create_index(
        "usage_settled", "usage", ["settled_at"], unique=False, postgresql_where=sa.text("is_final")
    )
    op.create_index(
        "usage_unbooked", "usage", ["created_at"], unique=False, postgresql_where=sa.text("NOT is_booked")
    )
    op.add_column("accounts", sa.Column("weight", sa.Double(), server_default="1", nullable=False))
    op.add_column("accounts", sa.Column("requests_per_minute", sa.Integer(), nullable=True))
    op.add_column("accounts", sa.Column("tokens_per_minute", sa.Integer(), nullable=True))
    op.add_column("accounts", sa.Column("batch_tokens_per_minute", sa.Integer(), nullable=True))
    op.add_column("accounts", sa.Column("max_waiting_jobs", sa.Integer(), nullable=True))
    op.add_column("accounts", sa.Column("max_waiting_tokens", sa.Integer(), nullable=True))
    op.add_column(
        "accounts", sa.Column("accepts_late_windows", sa.Boolean(), server_default="false", nullable=False)
    )
    op.add_column("api_keys", sa.Column("requests_per_minute", sa.Integer(), nullable=True))
    op.add_column("api_keys", sa.Column("tokens_per_minute", sa.Integer(), nullable=True))
    op.add_column("jobs", sa.Column("key_id", sa.UUID(), nullable=True))
    op.add_column("jobs", sa.Column("session_id", sa.Text(), nullable=True))
    op.add_column("jobs", sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column(
        "jobs", sa.Column("completion_window", sa.String(length=32), server_default="soonest", nullable=False)
    )
    op.add_column("jobs", sa.Column("due_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("jobs", sa.Column("price_factor", sa.Numeric(), server_default="1", nullable=False))
    op.add_column(
        "jobs",
        sa.Column("order_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
    )
    op.add_column("jobs", sa.Column("prompt_tokens", sa.Integer(), server_default="0", nullable=False))
    op.add_column("jobs", sa.Column("reserved_tokens", sa.Integer(), server_default="0", nullable=False))
    op.add_column("jobs", sa.Column("is_long", sa.Boolean(), server_default="false", nullable=False))
    op.add_column("jobs", sa.Column("placed_on", sa.Text(), nullable=True))
    op.add_column("jobs", sa.Column("charged_tokens", sa.Integer(), server_default="0", nullable=False))
    op.add_column("jobs", sa.Column("is_preemptible", sa.Boolean(), server_default="true", nullable=False))
    op.add_column("jobs", sa.Column("preemptions", sa.Integer(), server_default="0", nullable=False))
    op.add_column("jobs", sa.Column("estimated_start_at", sa.DateTime(timezone=True), nullable=True))
    op.drop_index("jobs_queued", table_name="jobs", postgresql_where=sa.text("status = 'queued'"))
    op.create_index(
        "jobs_expiring",
        "jobs",
        ["expires_at"],
        unique=False,
        postgresql_where=sa.text("status = 'queued' AND started_at IS NULL AND expires_at IS NOT NULL"),
    )
    op.create_index(
        "jobs_lease",
        "jobs",
        ["lease_id"],
        unique=True,
        postgresql_where=sa.text("lease_id IS NOT NULL"),
    )
    op.create_index(
        "jobs_line",
        "jobs",
        ["model", "tier", "is_long", "account_id", "order_at", "id"],
        unique=False,
        postgresql_where=sa.text("status = 'queued'"),
    )
    op.create_index(
        "jobs_overdue",
        "jobs",
        ["deadline_at"],
        unique=False,
        postgresql_where=sa.text("status = 'queued' AND deadline_at IS NOT NULL"),
    )
    op.create_index(
        "jobs_placed", "jobs", ["placed_on"], unique=False, postgresql_where=sa.text("placed_on IS NOT NULL")
    )
    op.create_index(
        "jobs_session",
        "jobs",
        ["account_id", "session_id"],
        unique=False,
        postgresql_where=sa.text("session_id IS NOT NULL"),
    )
    op.add_column("workers", sa.Column("running_interactive", sa.Integer(), server_default="0", nullable=False))
    op.add_column("workers", sa.Column("running_batch", sa.Integer(), server_default="0", nullable=False))
    op.add_column("workers", sa.Column("tokens_in_flight", sa.Integer(), server_default="0", nullable=False))
    op.add_column("workers", sa.Column("kv_use", sa.Double(), nullable=True))
    op.drop_column("workers", "running")
    op.create_check_constraint(
        "window_known", "jobs", "completion_window IN ('1h', '24h', '2h', '8h', 'soonest')"
    )
    op.create_check_constraint("placed_only_while_queued", "jobs", "placed_on IS NULL OR status = 'queued'")
    op.create_check_constraint("tokens_counted", "jobs", "prompt_tokens >= 0 AND reserved_tokens >= 0")
    op.create_check_constraint("weight_positive", "accounts", "weight > 0")


def downgrade() -> None:
    op.drop_constraint("window_known", "jobs")
    op.drop_constraint("placed_only_while_queued", "jobs")
    op.drop_constraint("tokens_counted", "jobs")
    op.drop_constraint("weight_positive", "accounts")
    op.add_column("workers", sa.Column("running", sa.Integer(), server_default="0", nullable=False))
    op.drop_column("workers", "kv_use")
    op.drop_column("workers", "tokens_in_flight")
    op.drop_column("workers", "running_batch")
    op.drop_column("workers", "running_interactive")
    op.drop_index("jobs_session", table_name="jobs", postgresql_where=sa.text("session_id IS NOT NULL"))
    op.drop_index("jobs_placed", table_name="jobs", postgresql_where=sa.text("placed_on IS NOT NULL"))
    op.drop_index(
        "jobs_overdue",
        table_name="jobs",
        postgresql_where=sa.text("status = 'queued' AND deadline_at IS NOT NULL"),
    )
    op.drop_index("jobs_lease", table_name="jobs", postgresql_where=sa.text("lease_id IS NOT NULL"))
    op.drop_index("jobs_line", table_name="jobs", postgresql_where=sa.text("status = 'queued'"))
    op.drop_index(
        "jobs_expiring",
        table_name="jobs",
        postgresql_where=sa.text("status = 'queued' AND started_at IS NULL AND expires_at IS NOT NULL"),
    )
    op.create_index(
        "jobs_queued",
        "jobs",
        ["model", "tier", "available_at"],
        unique=False,
        postgresql_where=sa.text("status = 'queued'"),
    )
    op.drop_column("jobs", "estimated_start_at")
    op.drop_column("jobs", "preemptions")
    op.drop_column("jobs", "is_preemptible")
    op.drop_column("jobs", "charged_tokens")
    op.drop_column("jobs", "placed_on")
    op.drop_column("jobs", "is_long")
    op.drop_column("jobs", "reserved_tokens")
    op.drop_column("jobs", "prompt_tokens")
    op.drop_column("jobs", "order_at")
    op.drop_column("jobs", "price_factor")
    op.drop_column("jobs", "due_at")
    op.drop_column("jobs", "completion_window")
    op.drop_column("jobs", "claimed_at")
    op.drop_column("jobs", "session_id")
    op.drop_column("jobs", "key_id")
    op.drop_column("api_keys", "tokens_per_minute")
    op.drop_column("api_keys", "requests_per_minute")
    op.drop_column("accounts", "accepts_late_windows")
    op.drop_column("accounts", "max_waiting_tokens")
    op.drop_column("accounts", "max_waiting_jobs")
    op.drop_column("accounts", "batch_tokens_per_minute")
    op.drop_column("accounts", "tokens_per_minute")
    op.drop_column("accounts", "requests_per_minute")
    op.drop_column("accounts", "weight")
    op.drop_index("usage_unbooked", table_name="usage", postgresql_where=sa.text("NOT is_booked"))
    op.drop_index("usage_settled", table_name="usage", postgresql_where=sa.text("is_final"))
    op.drop_index("usage_final", table_name="usage", postgresql_where=sa.text("is_final"))
    op.drop_index("usage_account", table_name="usage")
    op.drop_table("usage")
    op.drop_table("shares")
    op.drop_table("lines")
