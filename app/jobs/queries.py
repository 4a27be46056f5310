"""What the edges ask of jobs and workers, and erasing a finished job, which is not of the lifecycle."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, DateTime, column, exists, func, select, table
from sqlalchemy.orm import Session

from app.ids import PrefixedId, is_id
from app.jobs import log
from app.jobs.errors import JobActive, JobInBatch, JobNotFound
from app.jobs.states import Status
from app.jobs.tables import Job, Worker
from config.queues import Tier

# As much of `app.batches`, which is built on jobs, as erasing them must know.
_batches: Final = table("batches", column("id", PrefixedId("batch")), column("finished_at", DateTime()))


def get_job(session: Session, account_id: str, job_id: str) -> Job:
    """Raises `JobNotFound`, also for another account's job."""
    job = find_job(session, job_id)
    if job is None or job.account_id != account_id:
        raise JobNotFound(job_id)
    return job


def find_job(session: Session, job_id: str) -> Job | None:
    return session.get(Job, job_id) if is_id("job", job_id) else None


def find_status(session: Session, job_id: str) -> Status | None:
    return session.scalar(select(Job.status).where(Job.id == job_id)) if is_id("job", job_id) else None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs to list; None filters nothing."""

    status: Status | None = None
    model: str | None = None
    tier: Tier | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    batch_id: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None


def list_jobs(
    session: Session, account_id: str, chosen: Filter, *, after: str | None, limit: int, newest_first: bool
) -> list[Job]:
    """One page of an account's jobs. `after` is the id of the last job of the page before."""
    statement = select(Job).where(Job.account_id == account_id)
    for name in ("status", "model", "tier", "batch_id"):
        if (value := getattr(chosen, name)) is not None:
            statement = statement.where(getattr(Job, name) == value)
    if chosen.metadata:
        statement = statement.where(Job.labels.contains(dict(chosen.metadata)))
    if chosen.created_after is not None:
        statement = statement.where(Job.created_at >= chosen.created_after)
    if chosen.created_before is not None:
        statement = statement.where(Job.created_at < chosen.created_before)
    if after is not None:
        statement = statement.where(Job.id < after if newest_first else Job.id > after)
    return list(session.scalars(statement.order_by(Job.id.desc() if newest_first else Job.id).limit(limit)))


def delete_job(session: Session, account_id: str, job_id: str) -> None:
    """Erase a finished job with its log. Raises `JobNotFound`, `JobInBatch`, `JobActive`."""
    job = get_job(session, account_id, job_id)
    require_free(session, job)
    if not job.status.is_terminal:
        raise JobActive(job_id, job.status)
    log.erase(session, [job_id])


def require_free(session: Session, job: Job) -> None:
    """Raises `JobInBatch` for a line of a batch that has not ended: its files are made of its lines."""
    if job.batch_id is not None and session.scalar(select(is_held()).where(Job.id == job.id)):
        raise JobInBatch(job.id, job.batch_id)


def is_held() -> ColumnElement[bool]:
    """Whether a job is a line of a batch that has not ended."""
    return exists().where(_batches.c.id == Job.batch_id, _batches.c.finished_at.is_(None))


def live_workers(session: Session, within_seconds: float) -> list[Worker]:
    """Workers that were heard of lately."""
    seen_since = func.now() - timedelta(seconds=within_seconds)
    return list(session.scalars(select(Worker).where(Worker.seen_at > seen_since).order_by(Worker.id)))
