"""The tables of the line itself: one row a model and tier, and each account's share of it."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, Text, func
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.db import Base
from app.ids import PrefixedId
from app.jobs.tables import Timestamp, quoted, text_enum
from config.queues import Tier


class LineState(StrEnum):
    OPEN = "open"
    PAUSED = "paused"  # takes jobs, starts none
    DRAINING = "draining"  # starts jobs, takes none


class Line(Base):
    """What operators want of a line, and what the dispatcher last measured of it (at `measured_at`)."""

    __tablename__ = "lines"

    model: Mapped[str] = mapped_column(Text, primary_key=True)
    tier: Mapped[Tier] = mapped_column(text_enum(Tier), primary_key=True)
    state: Mapped[LineState] = mapped_column(text_enum(LineState), server_default=LineState.OPEN)
    virtual_clock: Mapped[float] = mapped_column(server_default="0")  # see `Share`
    # See `app.line.waiting.Measure`; empty until measured.
    measured: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default="{}")
    measured_at: Mapped[datetime | None] = mapped_column(Timestamp)

    __table_args__ = (
        CheckConstraint(f"tier IN ({quoted(Tier)})", name="tier_known"),
        CheckConstraint(f"state IN ({quoted(LineState)})", name="state_known"),
    )


class Share(Base):
    """How many tokens an account was given in a line, over its weight: the virtual token counter of Sheng et
    al., "Fairness in Serving Large Language Models" (OSDI 2024). The account with the least goes next; one that
    comes back after a pause (not `is_active`) is lifted to the least of those that stayed.
    """

    __tablename__ = "shares"

    account_id: Mapped[str] = mapped_column(PrefixedId("acct"), primary_key=True)
    model: Mapped[str] = mapped_column(Text, primary_key=True)
    tier: Mapped[Tier] = mapped_column(text_enum(Tier), primary_key=True)
    virtual_tokens: Mapped[float] = mapped_column(server_default="0")
    is_active: Mapped[bool] = mapped_column(server_default="false")
    changed_at: Mapped[datetime] = mapped_column(Timestamp, server_default=func.now())
