"""How a batch stands: counted from its lines while it runs, and read from its row once it has ended. What is
used and what it costs is that of lines that have ended, so that it never falls.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import bindparam, func, or_, select, text
from sqlalchemy.orm import Session

from app.batches.tables import Batch
from app.ids import PrefixedId
from app.jobs.states import TERMINAL, IncompleteReason, Status
from app.jobs.tables import Job
from config.catalogue import catalogue

# Lines that have an answer; one that the window's end cut short has none.
ANSWERED: Final = or_(
    Job.status == Status.COMPLETED,
    (Job.status == Status.INCOMPLETE) & (Job.incomplete_reason != IncompleteReason.COMPLETION_WINDOW),
)
# Lines that the end of the window ended.
LATE: Final = or_(Job.status == Status.EXPIRED, Job.incomplete_reason == IncompleteReason.COMPLETION_WINDOW)
ENDED: Final = Job.status.in_(TERMINAL)


@dataclass(frozen=True, slots=True)
class Counts:
    """Lines, and what those that have ended used. `failed` includes the lines that cannot be run. `cost` is
    None where a model has no price.
    """

    total: int = 0
    completed: int = 0
    failed: int = 0
    running: int = 0
    queued: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = Decimal(0)

    @property
    def ended(self) -> int:
        return self.completed + self.failed


def count(session: Session, batches: Sequence[Batch]) -> dict[str, Counts]:
    """By batch id."""
    running = {batch.id: batch for batch in batches if batch.finished_at is None}
    found: dict[str, list[Any]] = defaultdict(list)
    if running:
        for row in session.execute(_BY_MODEL.where(Job.batch_id.in_(running))):
            found[row.batch_id].append(row)
    return {
        batch.id: _counted(batch, found[batch.id]) if batch.id in running else _kept(batch) for batch in batches
    }


_BY_MODEL: Final = select(
    Job.batch_id,
    Job.model,
    func.count().label("total"),
    func.count().filter(ANSWERED).label("completed"),
    func.count().filter(Job.status == Status.IN_PROGRESS).label("running"),
    func.count().filter(Job.status == Status.QUEUED).label("queued"),
    *(
        func.coalesce(func.sum(column).filter(ENDED), 0).label(column.key)
        for column in (Job.input_tokens, Job.cached_tokens, Job.output_tokens)
    ),
).group_by(Job.batch_id, Job.model)


def _kept(batch: Batch) -> Counts:
    return Counts(
        batch.total,
        batch.completed,
        batch.failed,
        input_tokens=batch.input_tokens,
        cached_tokens=batch.cached_tokens,
        output_tokens=batch.output_tokens,
        cost=batch.cost,
    )


def _counted(batch: Batch, rows: Iterable[Any]) -> Counts:
    rows = list(rows)
    lines, completed, running, queued = (
        sum(getattr(row, name) for row in rows) for name in ("total", "completed", "running", "queued")
    )
    used = {name: sum(int(getattr(row, name)) for row in rows) for name in _USED}
    return Counts(
        lines + batch.invalid,
        completed,
        lines - completed - running - queued + batch.invalid,
        running,
        queued,
        **used,
        cost=_cost(batch, rows),
    )


_USED: Final = ("input_tokens", "cached_tokens", "output_tokens")


def _cost(batch: Batch, rows: Iterable[Any]) -> Decimal | None:
    total = Decimal(0)
    for row in rows:
        spec = catalogue().get(row.model)
        if spec is None or spec.price is None:
            return None
        total += spec.price.of(*(int(getattr(row, name)) for name in _USED))
    return total * batch.price_factor


def first_active_line(session: Session, batch_id: str, start: int) -> int | None:
    """The first line from `start` on that has not ended. A line that has ended stays so: `start` may be what
    was found before.
    """
    statement = select(Job.line).where(Job.batch_id == batch_id, Job.line >= start, ~ENDED)
    return session.scalar(statement.order_by(Job.line).limit(1))


def any_late(session: Session, batch_id: str) -> bool:
    """Whether the end of the window ended a line."""
    return session.scalar(select(Job.id).where(Job.batch_id == batch_id, LATE).limit(1)) is not None


_REASONING: Final = text("""
    SELECT coalesce(sum((part->>'tokens')::bigint), 0)
    FROM jobs
        JOIN job_segments segment ON segment.job_id = jobs.id AND segment.first_seq > jobs.output_start_seq,
        jsonb_array_elements(segment.parts) delta, jsonb_array_elements(delta) part
    WHERE jobs.batch_id = :batch_id AND segment.parts IS NOT NULL AND part->>'type' = 'reasoning'
""").bindparams(bindparam("batch_id", type_=PrefixedId("batch")))


def reasoning_tokens(session: Session, batch_id: str) -> int:
    """How many of the output tokens of its lines were thoughts."""
    return int(session.execute(_REASONING, {"batch_id": batch_id}).scalar_one())
