"""The tables of files and of the contents that they share."""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import BigInteger, CheckConstraint, DateTime, Enum, ForeignKey, Index, Text, func, text
from sqlalchemy.orm import Mapped, mapped_column

from app.db import Base
from app.ids import PrefixedId

Timestamp = DateTime(timezone=True)


class Purpose(StrEnum):
    """What a file is for, in OpenAI's words; `batch_output` is ours to give."""

    BATCH = "batch"
    BATCH_OUTPUT = "batch_output"
    USER_DATA = "user_data"
    ASSISTANTS = "assistants"


class Blob(Base):
    """Contents, by their SHA-256 in hexadecimal. One that no file has any more goes, once it was not touched
    for a while: an upload touches it before it stores the bytes.
    """

    __tablename__ = "blobs"

    digest: Mapped[str] = mapped_column(Text, primary_key=True)
    bytes: Mapped[int] = mapped_column(BigInteger)
    touched_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())


class StoredFile(Base):
    __tablename__ = "files"

    id: Mapped[str] = mapped_column(PrefixedId("file"), primary_key=True)
    account_id: Mapped[str] = mapped_column(PrefixedId("acct"), ForeignKey("accounts.id"))
    digest: Mapped[str] = mapped_column(Text, ForeignKey("blobs.digest"), index=True)
    bytes: Mapped[int] = mapped_column(BigInteger)
    filename: Mapped[str] = mapped_column(Text)
    purpose: Mapped[Purpose] = mapped_column(
        Enum(Purpose, native_enum=False, length=32, values_callable=lambda kind: [one.value for one in kind])
    )
    created_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
    expires_at: Mapped[datetime | None] = mapped_column(Timestamp)

    __table_args__ = (
        CheckConstraint("bytes >= 0", name="bytes_counted"),
        CheckConstraint(
            "purpose IN ('assistants', 'batch', 'batch_output', 'user_data')", name="purpose_known"
        ),
        Index("files_account", "account_id", "id"),
        Index("files_expiring", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
    )
