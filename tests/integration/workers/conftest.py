"""A worker process's insides in this process, on the simulated engine, so that a test can hold each thread."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.db import transaction
from app.jobs.queries import find_job
from app.jobs.tables import Job
from app.streams import channel
from tests.following import StrictFollower


@pytest.fixture
def worker(clean: dict[str, str]) -> Iterator[Any]:
    from workers.process import WorkerProcess

    process = WorkerProcess()
    process.boot()
    yield process
    process.begin_draining()
    process.shut_down()


@pytest.fixture
def other_worker(worker: Any) -> Iterator[Any]:
    """A second process, for what happens when the first one stops."""
    from workers.process import WorkerProcess

    process = WorkerProcess()
    process.boot()
    yield process
    process.shut_down()


@pytest.fixture
def start(worker: Any) -> Iterator[Callable[..., threading.Thread]]:
    """`start(job)` runs a job on a thread, as Celery would."""
    from workers.executor import run_job

    threads: list[threading.Thread] = []

    def run(job: Job, on: Any = None) -> threading.Thread:
        thread = threading.Thread(target=run_job, args=(on or worker, job.id))
        thread.start()
        threads.append(thread)
        return thread

    yield run
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture
def run(start: Callable[..., threading.Thread]) -> Callable[..., Job]:
    """`run(job)` runs a job to its end and gives the row."""

    def run_to_end(job: Job, on: Any = None) -> Job:
        start(job, on).join(20)
        return reload(job)

    return run_to_end


def reload(job: Job) -> Job:
    with transaction() as session:
        found = find_job(session, job.id)
    assert found is not None
    return found


def replay(job: Job) -> StrictFollower:
    """The whole log of a finished job through a strict follower."""
    follower = StrictFollower()
    for batch in channel.follow(job.id, 0, tick_seconds=0.5):
        follower.take_all(frame.body for frame in batch)
    return follower
