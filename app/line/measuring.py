"""Measuring the lines of a tier, all of them at once: depth from Postgres, rates from what was booked, room
from the workers; and keeping the result where everybody may read it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import ARRAY, Text, bindparam, select, text
from sqlalchemy.orm import Session

from app.line.measures import Measure
from app.line.plan import Room
from app.line.rates import Rate, Rates
from app.line.tables import Line, LineState
from app.line.waiting import Depth, read_depths
from config.queues import Tier

_OPEN = text("""
    INSERT INTO lines (model, tier) SELECT model, tier
    FROM unnest(:models) AS known(model), unnest(:tiers) AS tiers(tier)
    ON CONFLICT DO NOTHING
""").bindparams(bindparam("models", type_=ARRAY(Text)), bindparam("tiers", type_=ARRAY(Text)))


def open_lines(session: Session, models: Sequence[str]) -> None:
    """See to it that every model has its lines."""
    session.execute(_OPEN, {"models": sorted(models), "tiers": [tier.value for tier in Tier]})


def read_states(session: Session) -> dict[tuple[str, Tier], LineState]:
    rows = session.execute(select(Line.model, Line.tier, Line.state))
    return {(row.model, row.tier): row.state for row in rows}


def measure(
    session: Session,
    models: Sequence[str],
    tier: Tier,
    rooms: dict[str, list[Room]],
    rates: Rates,
    now: datetime,
) -> list[Measure]:
    """The lines of `models` in a tier. Takes as long as jobs wait in them."""
    states = read_states(session)
    depths = read_depths(session, models, tier)
    return [
        _measure(
            model,
            tier,
            now,
            states.get((model, tier), LineState.OPEN),
            depths.get(model, Depth({})),
            rooms.get(model, []),
            rates.of(model, tier, now.timestamp()),
        )
        for model in models
    ]


def _measure(
    model: str,
    tier: Tier,
    now: datetime,
    state: LineState,
    depth: Depth,
    rooms: Sequence[Room],
    rate: Rate,
) -> Measure:
    running = sum(room.interactive if tier is Tier.INTERACTIVE else room.batch for room in rooms)
    slots = sum(room.slots for room in rooms)
    # Batch jobs get what interactive ones leave, and never nothing: they age.
    usable = slots if tier is Tier.INTERACTIVE else max(min(1, slots), slots - _interactive(rooms))
    return Measure(
        model=model,
        tier=tier,
        measured_at=now,
        state=state,
        jobs=depth.jobs,
        tokens=depth.tokens,
        oldest_at=depth.oldest_at,
        running=running,
        slots=slots,
        free_slots=sum(room.room_for(tier) for room in rooms),
        jobs_per_second=rate.jobs_per_second,
        tokens_per_second=rate.tokens_per_slot_second * usable,
        estimate_error_seconds=rate.estimate_error_seconds,
        accounts=depth.accounts,
    )


def _interactive(rooms: Sequence[Room]) -> int:
    return sum(room.interactive for room in rooms)


_KEEP = text("""
    UPDATE lines SET measured = CAST(kept.measured AS jsonb), measured_at = :measured_at
    FROM unnest(:models, :tiers, :measured) AS kept(model, tier, measured)
    WHERE lines.model = kept.model AND lines.tier = kept.tier
""").bindparams(
    *(bindparam(name, type_=ARRAY(Text)) for name in ("models", "tiers", "measured")),
)


def keep(session: Session, measures: Sequence[Measure]) -> None:
    """Store the measures for readers."""
    values: dict[str, Any] = {
        "models": [measure.model for measure in measures],
        "tiers": [measure.tier.value for measure in measures],
        "measured": [orjson.dumps(measure.as_json()).decode() for measure in measures],
        "measured_at": measures[0].measured_at if measures else None,
    }
    session.execute(_KEEP, values)
