"""Verbs of the lifecycle, each in its own transaction, for playing several workers at once."""

from collections.abc import Callable
from typing import Any

import pytest

from app.db import transaction
from app.jobs import lifecycle, rescue
from app.jobs.log import Segment, store_segments
from app.jobs.moves import Move
from app.jobs.tables import Job


@pytest.fixture
def do() -> Callable[..., Any]:
    """`do(verb, *args)` runs a verb in a transaction of its own."""

    def run(verb: Callable[..., Any], *args: Any, **options: Any) -> Any:
        with transaction() as session:
            return verb(session, *args, **options)

    return run


@pytest.fixture
def claim(do: Callable[..., Any]) -> Callable[..., Move | None]:
    def run(job: Job, lease_seconds: float = 30.0, worker: str = "worker-1") -> Move | None:
        return do(lifecycle.claim, job.id, worker, lease_seconds)

    return run


@pytest.fixture
def store(do: Callable[..., Any]) -> Callable[..., set[str]]:
    """`store(job, seq, text)` stores one delta under the job's lease."""

    def run(job: Job, seq: int, text: str, offset: int = 0, lease_id: str | None = None) -> set[str]:
        return do(store_segments, [segment(job, seq, text, offset, lease_id)])

    return run


def segment(job: Job, seq: int, text: str, offset: int = 0, lease_id: str | None = None) -> Segment:
    return Segment(
        job_id=job.id,
        lease_id=lease_id or job.lease_id or "",
        first_seq=seq,
        seq=seq,
        attempt=job.attempt,
        char_offset=offset,
        text=text,
        ends=[len(text)],
        token_ids=[ord(char) for char in text],
    )


@pytest.fixture
def lose(do: Callable[..., Any]) -> Callable[..., Move | None]:
    """`lose(job)` lets the job's lease run out and rescues it."""
    from sqlalchemy import text

    def run(job: Job, tail: list[Segment] | None = None, max_attempts: int = 3) -> Move | None:
        with transaction() as session:
            session.execute(
                text("UPDATE jobs SET lease_expires_at = now() - interval '1 s' WHERE lease_id = :lease"),
                {"lease": job.lease_id},
            )
        return do(rescue.rescue, job.id, job.lease_id, tail or [], max_attempts)

    return run
