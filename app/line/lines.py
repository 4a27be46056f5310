"""What the dispatcher last measured of the lines, as readers see it: read from Postgres at most once a second
in a process. A line that nobody measured yet, or that is not known, is an empty one that is open.
"""

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from cachetools import TTLCache
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.line.measures import Measure, from_json
from app.line.tables import Line
from config.queues import Tier

Lines = Mapping[tuple[str, Tier], Measure]

KEPT_SECONDS: Final = 1.0
NEVER: Final = datetime.fromtimestamp(0, UTC)  # `measured_at` of what was not measured yet

_kept: Final[TTLCache[str, Lines]] = TTLCache(1, KEPT_SECONDS)
_lock: Final = threading.Lock()


def read_lines(session: Session) -> Lines:
    """Every line that there is a row of."""
    rows = session.execute(select(Line.model, Line.tier, Line.state, Line.measured_at, Line.measured))
    return {
        (row.model, row.tier): from_json(row.model, row.tier, row.state, row.measured_at or NEVER, row.measured)
        for row in rows
    }


def recent_lines(session: Session) -> Lines:
    """`read_lines` of this second."""
    with _lock:
        kept = _kept.get("")
    if kept is None:
        kept = read_lines(session)
        with _lock:
            _kept[""] = kept
    return kept


def forget_lines() -> None:
    """Read anew at the next call."""
    with _lock:
        _kept.clear()


def line_of(lines: Lines, model: str, tier: Tier) -> Measure:
    return lines.get((model, tier)) or Measure(model=model, tier=tier, measured_at=NEVER)


def other_tier(tier: Tier) -> Tier:
    return Tier.BATCH if tier is Tier.INTERACTIVE else Tier.INTERACTIVE
