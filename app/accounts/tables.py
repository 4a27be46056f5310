"""The tables of accounts and API keys."""

from datetime import datetime

from sqlalchemy import CheckConstraint, DateTime, ForeignKey, LargeBinary, Text, func
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from app.db import Base
from app.ids import PrefixedId


class Account(Base):
    __tablename__ = "accounts"

    id: Mapped[str] = mapped_column(PrefixedId("acct"), primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())

    # Its own settings; null is what the installation's settings say, 0 is no limit.
    weight: Mapped[float] = mapped_column(server_default="1")  # its share of the line, against other accounts
    requests_per_minute: Mapped[int | None]
    tokens_per_minute: Mapped[int | None]  # interactive
    batch_tokens_per_minute: Mapped[int | None]
    max_waiting_jobs: Mapped[int | None]  # in one line: a model's tier
    max_waiting_tokens: Mapped[int | None]
    accepts_late_windows: Mapped[bool] = mapped_column(server_default="false")  # else refused at submission

    # Event types of logs that some webhook endpoint of it wants (`app.webhooks.endpoints` writes it).
    listens_to: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default="{}")

    __table_args__ = (CheckConstraint("weight > 0", name="weight_positive"),)


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
    # As the account's; a request must fit both.
    requests_per_minute: Mapped[int | None]
    tokens_per_minute: Mapped[int | None]
