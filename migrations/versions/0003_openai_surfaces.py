"""OpenAI surfaces: which API a job came through, what that one echoes, and output taken apart"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("surface", sa.String(length=32), server_default="jobs", nullable=False))
    op.add_column("jobs", sa.Column("echo", postgresql.JSONB(astext_type=sa.Text()), nullable=True))
    op.add_column("jobs", sa.Column("is_stored", sa.Boolean(), server_default="true", nullable=False))
    op.add_column("job_segments", sa.Column("parts", postgresql.JSONB(astext_type=sa.Text()), nullable=True))
    # NOT VALID first: only the second step reads the table, and it lets writers through.
    op.execute(
        "ALTER TABLE jobs ADD CONSTRAINT surface_known"
        " CHECK (surface IN ('chat', 'completions', 'jobs', 'responses')) NOT VALID"
    )
    op.execute("ALTER TABLE jobs VALIDATE CONSTRAINT surface_known")
    op.create_index(
        "jobs_unstored",
        "jobs",
        ["finished_at"],
        postgresql_where=sa.text("NOT is_stored AND finished_at IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("jobs_unstored", table_name="jobs")
    op.drop_constraint("surface_known", "jobs")
    for column in ("surface", "echo", "is_stored"):
        op.drop_column("jobs", column)
    op.drop_column("job_segments", "parts")
