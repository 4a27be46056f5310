"""Cancelling a batch: at once where its lines are still being checked, else by ending those that wait and
telling workers of those that run. What runs keeps its partial output.
"""

from collections.abc import Sequence

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from app.batches import lifecycle
from app.batches.states import BatchStatus
from app.batches.tables import Batch
from app.db import call_after_commit
from app.jobs import states
from app.jobs.moves import move_many
from app.jobs.states import Status
from app.jobs.tables import Job, JobEvent
from app.streams.announce import ask_to_cancel


def request(session: Session, batch: Batch) -> Batch:
    """The batch after it; as it was, if it has ended, is being cancelled, or has nothing left to run."""
    found = lifecycle.advance(session, batch.id, {BatchStatus.VALIDATING}, BatchStatus.CANCELLED)
    if found is not None:
        return found
    found = lifecycle.advance(session, batch.id, {BatchStatus.IN_PROGRESS}, BatchStatus.CANCELLING)
    if found is None:
        return session.get_one(Batch, batch.id, populate_existing=True)
    tell_workers(session, batch.id)
    return found


def tell_workers(session: Session, batch_id: str) -> int:
    """Mark the lines that run and are not marked, and tell their workers after the commit. How many."""
    # Locked in id order, as heartbeats and recorders do.
    running = (
        select(Job.id)
        .where(Job.batch_id == batch_id, Job.status == Status.IN_PROGRESS, Job.cancel_requested_at.is_(None))
        .order_by(Job.id)
        .with_for_update(key_share=True)
    )
    marked = session.scalars(
        update(Job)
        .where(Job.id.in_(running.cte("running").select()), Job.status == Status.IN_PROGRESS)
        .values(cancel_requested_at=func.now())
        .returning(Job.id)
        .execution_options(synchronize_session=False)
    ).all()
    if marked:
        call_after_commit(session, lambda: _tell(marked))
    return len(marked)


def _tell(job_ids: Sequence[str]) -> None:
    for job_id in job_ids:
        ask_to_cancel(job_id)


def end_waiting(session: Session, batch_id: str, limit: int) -> Sequence[JobEvent]:
    """Cancel up to `limit` lines that wait. Their events."""
    requested = {"cancel_requested_at": func.coalesce(Job.cancel_requested_at, func.now())}
    return move_many(session, states.CANCEL, Job.batch_id == batch_id, values=requested, limit=limit)
