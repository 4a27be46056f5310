"""Many jobs that end together: the same rows as one by one."""

import pytest
from sqlalchemy import func, select, text

from app.db import transaction
from app.jobs import lifecycle, states
from app.jobs.moves import move, move_many
from app.jobs.states import RequeueReason, Status
from app.jobs.tables import Job, JobEvent, Usage

OWN = {"id", "job_id", "created_at", "order_at", "due_at", "available_at", "updated_at"}


def rows(job):
    """What the database has of a job, but for names and times."""
    found = {}
    with transaction() as session:
        for table, column in ((Job, Job.id), (JobEvent, JobEvent.job_id), (Usage, Usage.job_id)):
            where = select(table.__table__).where(column == job.id)
            found[table] = [
                {
                    name: value
                    for name, value in row._mapping.items()
                    if name not in OWN and not name.endswith(("_at", "_seconds"))
                }
                for row in session.execute(where)
            ]
    return found


@pytest.fixture
def make(make_job, claim, store, do):
    """A job that waits: it never ran, or it yielded after some output."""

    def waiting(*, has_run):
        job = make_job(tier="batch", metadata={"a": "b"})
        if has_run:
            held = claim(job).job
            store(held, 3, "partial")
            do(
                lifecycle.hand_back,
                job.id,
                held.lease_id,
                lifecycle.Prefill(9, 4, 0.1),
                RequeueReason.PREEMPTED,
            )
        return job

    return waiting


@pytest.mark.parametrize(
    ("transition", "values", "has_run"),
    [
        (states.CANCEL, {"cancel_requested_at": func.now()}, False),
        (states.CANCEL, {"cancel_requested_at": func.now()}, True),
        (states.EXPIRE, {}, False),
        (states.STOP_EARLY, {"incomplete_reason": "completion_window"}, True),
    ],
)
def test_many_moves_write_what_each_move_would(make, do, transition, values, has_run):
    one, other = make(has_run=has_run), make(has_run=has_run)
    do(move, one.id, transition, values=values)
    (event,) = do(move_many, transition, Job.id == other.id, values=values, limit=10)
    assert rows(other) == rows(one)
    last = rows(one)[JobEvent][-1]
    assert (event.job_id, event.seq, event.type, event.data) == (
        other.id,
        *(last[k] for k in ("seq", "type", "data")),
    )


def test_only_what_waits_moves_and_no_more_than_asked_for(make, make_job, claim, do):
    running = claim(make_job(tier="batch")).job
    waiting = [make(has_run=False) for _ in range(3)]
    assert len(do(move_many, states.CANCEL, limit=2)) == 2
    assert len(do(move_many, states.CANCEL, limit=2)) == 1
    assert list(do(move_many, states.CANCEL, limit=2)) == []
    with transaction() as session:
        left = dict(session.execute(select(Job.id, Job.status)).all())
    assert left == {running.id: Status.IN_PROGRESS, **{job.id: Status.CANCELLED for job in waiting}}


def test_a_job_that_another_holds_is_passed_over(make, do):
    held, free = make(has_run=False), make(has_run=False)
    with transaction() as session:
        session.execute(text("SELECT id FROM jobs WHERE id = :id FOR UPDATE"), {"id": held.id[4:]})
        assert [event.job_id for event in do(move_many, states.CANCEL, limit=9)] == [free.id]
