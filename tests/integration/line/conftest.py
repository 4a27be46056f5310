"""Reads and verbs of the line, each in a transaction of its own."""

from collections.abc import Callable
from typing import Any

import pytest

from app.db import transaction
from app.jobs import lifecycle
from app.jobs.moves import Move
from app.jobs.tables import Job


def act(verb: Callable[..., Any], *arguments: Any) -> Any:
    with transaction() as session:
        return verb(session, *arguments)


@pytest.fixture
def claim(clean: dict[str, str]) -> Callable[..., Move]:
    """`claim(job, worker="w1")` takes a job for a worker."""

    def run(job: Job, worker: str = "w1") -> Move:
        moved = act(lifecycle.claim, job.id, worker, 30.0)
        assert moved is not None
        return moved

    return run
