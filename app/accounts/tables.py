"""The tables of accounts and API keys."""

from datetime import datetime

from sqlalchemy import DateTime, ForeignKey, LargeBinary, Text, func
from sqlalchemy.orm import Mapped, mapped_column

from app.db import Base
from app.ids import PrefixedId


class Account(Base):
    __tablename__ = "accounts"

    id: Mapped[str] = mapped_column(PrefixedId("acct"), primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())


class ApiKey(Base):
    """`secret_hash` is SHA-256 of the whole secret: 256 random bits need no slow hash. `hint` is its end."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(PrefixedId("key"), primary_key=True)
    account_id: Mapped[str] = mapped_column(PrefixedId("acct"), ForeignKey("accounts.id"), index=True)
    name: Mapped[str] = mapped_column(Text)
    hint: Mapped[str] = mapped_column(Text)
    secret_hash: Mapped[bytes] = mapped_column(LargeBinary, unique=True)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    revoked_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
