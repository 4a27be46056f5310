"""What the edges ask of batches: one, a page of them, their lines, their faults, their log."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Select, func, select, true
from sqlalchemy.orm import Session, load_only

from app.batches.errors import BatchNotFound, LineNotFound
from app.batches.states import BatchStatus
from app.batches.tables import Batch, BatchEvent, BatchFault
from app.ids import is_id
from app.jobs.states import Status
from app.jobs.tables import Job

INVALID: Final = "invalid"  # how a line that is no job stands, where a job has its status

Line = Job | BatchFault

# What a line's job says of itself in a list: not the request, which may be megabytes.
_SHOWN: Final = load_only(
    Job.account_id,
    Job.batch_id,
    Job.line,
    Job.custom_id,
    Job.status,
    Job.input_tokens,
    Job.cached_tokens,
    Job.output_tokens,
    Job.error_code,
    Job.error_message,
    Job.incomplete_reason,
)


@dataclass(frozen=True, slots=True)
class Faults:
    """The first that are wrong with a batch, and how many there are."""

    first: Sequence[BatchFault] = ()
    total: int = 0


def get_batch(session: Session, account_id: str, batch_id: str) -> Batch:
    """Raises `BatchNotFound`, also for another account's batch."""
    batch = find_batch(session, batch_id)
    if batch is None or batch.account_id != account_id:
        raise BatchNotFound(batch_id)
    return batch


def find_batch(session: Session, batch_id: str) -> Batch | None:
    return session.get(Batch, batch_id) if is_id("batch", batch_id) else None


def list_batches(session: Session, account_id: str, *, after: str | None, limit: int) -> list[Batch]:
    """One page of an account's batches, newest first. `after` is the id of the last of the page before."""
    statement = select(Batch).where(Batch.account_id == account_id)
    if after is not None:
        statement = statement.where(Batch.id < after)
    return list(session.scalars(statement.order_by(Batch.id.desc()).limit(limit)))


def running_batches(session: Session) -> list[Batch]:
    """Every account's whose lines are jobs, and that have not ended; oldest first."""
    active = (Batch.finished_at.is_(None), Batch.status != BatchStatus.VALIDATING)
    return list(session.scalars(select(Batch).where(*active).order_by(Batch.id)))


def faults_of(session: Session, batches: Iterable[Batch], limit: int) -> dict[str, Faults]:
    """By batch, where it has any: the first `limit` of each."""
    batch_ids = [batch.id for batch in batches]
    counted = session.execute(
        select(BatchFault.batch_id, func.count())
        .where(BatchFault.batch_id.in_(batch_ids))
        .group_by(BatchFault.batch_id)
    )
    return {
        batch_id: Faults(_page_of_faults(session, batch_id, -1, limit), total) for batch_id, total in counted
    }


def list_lines(
    session: Session, batch_id: str, *, after: int, limit: int, status: Status | str | None = None
) -> list[Line]:
    """One page of a batch's lines, in order: those that are jobs, and those that could not be. `status` is a
    job's, or `INVALID`.
    """
    found: list[Line] = []
    if status != INVALID:
        chosen = true() if status is None else Job.status == status
        of_jobs = select(Job).options(_SHOWN).where(Job.batch_id == batch_id, Job.line > after, chosen)
        found += session.scalars(of_jobs.order_by(Job.line).limit(limit))
    if status in {None, INVALID}:
        found += _page_of_faults(session, batch_id, after, limit)
    return sorted(found, key=_number)[:limit]


def _number(line: Line) -> int:
    assert line.line is not None
    return line.line


def _page_of_faults(session: Session, batch_id: str, after: int, limit: int) -> Sequence[BatchFault]:
    found = select(BatchFault).where(BatchFault.batch_id == batch_id, BatchFault.line > after)
    return session.scalars(found.order_by(BatchFault.line).limit(limit)).all()


def get_line(session: Session, batch_id: str, number: int) -> Line:
    """Raises `LineNotFound`."""
    of_jobs: Select[Any] = select(Job).options(_SHOWN).where(Job.batch_id == batch_id, Job.line == number)
    line: Line | None = session.scalar(of_jobs) or session.get(BatchFault, (batch_id, number))
    if line is None:
        raise LineNotFound(batch_id, number)
    return line


def read_events(session: Session, batch_id: str, after: int, limit: int) -> list[BatchEvent]:
    """What the log of a batch has after a number."""
    found = select(BatchEvent).where(BatchEvent.batch_id == batch_id, BatchEvent.seq > after)
    return list(session.scalars(found.order_by(BatchEvent.seq).limit(limit)))


def last_seq(session: Session, batch_id: str) -> int:
    """The number of the last event of a batch; 0 without any."""
    found = session.scalar(select(func.max(BatchEvent.seq)).where(BatchEvent.batch_id == batch_id))
    return found or 0
