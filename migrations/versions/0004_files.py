"""Files, and the contents that they share"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "blobs",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("touched_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "files",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("account_id", sa.UUID(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("filename", sa.Text(), nullable=False),
        sa.Column("purpose", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("bytes >= 0", name="bytes_counted"),
        sa.CheckConstraint(
            "purpose IN ('assistants', 'batch', 'batch_output', 'user_data')", name="purpose_known"
        ),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["digest"], ["blobs.digest"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_files_digest", "files", ["digest"])
    op.create_index("files_account", "files", ["account_id", "id"])
    op.create_index(
        "files_expiring", "files", ["expires_at"], postgresql_where=sa.text("expires_at IS NOT NULL")
    )


def downgrade() -> None:
    op.drop_table("files")
    op.drop_table("blobs")
