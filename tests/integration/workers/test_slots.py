"""Which jobs a worker runs when it has less room than work."""

import pytest
from sqlalchemy import select, text

from app.db import transaction
from app.jobs.states import Status
from app.jobs.tables import Usage
from config.queues import Tier
from tests.eventually import eventually
from tests.integration.workers.conftest import reload, replay

SLOTS = 8  # of the model `faulty`
SLOW = "[[step_ms=20]]"


@pytest.fixture
def fill(make_job, start, worker):
    """`fill(tier)` takes every slot with slow jobs, one after the other. Gives the jobs, oldest first."""

    def run(tier=Tier.BATCH, **body):
        jobs = []
        for number in range(SLOTS):
            job = make_job(input=f"{SLOW} {number}", tier=tier, max_output_tokens=100, ignore_eos=True, **body)
            start(job)
            eventually(lambda job=job: is_generating(worker, job), 10, "all slots generate")
            jobs.append(job)
        return jobs

    return run


def is_generating(worker, job):
    return any(held.id == job.id and held.first_token_at for held in list(worker.jobs.values()))


def test_an_interactive_job_takes_the_slot_of_the_youngest_batch_job(fill, make_job, run, worker):
    batch = fill()
    job = run(make_job(input="[[tokens=5]]"))
    assert job.status is Status.COMPLETED
    assert worker.slots.count == SLOTS
    states = [reload(one).status for one in batch]
    assert states == [Status.IN_PROGRESS] * (SLOTS - 1) + [Status.QUEUED]


def test_a_preempted_job_loses_nothing_and_goes_on(fill, make_job, run):
    victim = fill()[-1]
    run(make_job(input="[[tokens=5]]"))
    back = reload(victim)
    assert (back.preemptions, back.lost_attempts, back.attempt) == (1, 0, 1)
    assert back.order_at == victim.order_at
    ended = run(back)
    assert ended.status is Status.INCOMPLETE
    assert ended.attempt == 2
    assert ended.output_tokens == 100
    follower = replay(ended)
    assert follower.rewinds == []
    assert follower.events == [
        "job.queued", "job.in_progress", "job.queued", "job.in_progress", "job.incomplete"
    ]  # fmt: skip
    with transaction() as session:
        first, second = session.scalars(
            select(Usage).where(Usage.job_id == ended.id).order_by(Usage.attempt)
        ).all()
    assert first.output_tokens + second.output_tokens == 100
    assert 0 < first.output_tokens < 100
    assert (first.input_tokens, second.input_tokens) == (ended.input_tokens, 0)
    assert (first.is_final, second.is_final) == (False, True)
    assert second.settled_tokens == ended.input_tokens + 100


def test_a_job_that_yielded_often_enough_yields_no_more(fill, make_job, run):
    fill()
    with transaction() as session:
        session.execute(text("UPDATE jobs SET preemptions = 2"))
    job = run(make_job(input="[[tokens=5]]"))
    assert job.status is Status.COMPLETED
    with transaction() as session:
        preempted = session.execute(
            text("SELECT preemptions, is_preemptible FROM jobs WHERE status = 'queued'")
        ).all()
    assert preempted == [(3, False)]


def test_an_interactive_job_waits_where_nothing_yields(fill, make_job, run, worker):
    fill(Tier.INTERACTIVE)
    job = make_job(input="[[tokens=5]]")
    place_on(job, worker)
    declined = run(job)
    assert (declined.status, declined.placed_on, declined.attempt) == (Status.QUEUED, None, 0)


def test_a_batch_job_never_takes_the_slot_of_another(fill, make_job, run, worker):
    running = fill()
    job = make_job(tier=Tier.BATCH, input="[[tokens=5]]")
    place_on(job, worker)
    declined = run(job)
    assert (declined.status, declined.placed_on) == (Status.QUEUED, None)
    assert {reload(one).status for one in running} == {Status.IN_PROGRESS}


def test_many_interactive_jobs_at_once_each_get_a_slot(fill, make_job, start):
    batch = fill()
    jobs = [make_job(input="[[tokens=20]]") for _ in range(SLOTS)]
    for thread in [start(job) for job in jobs]:
        thread.join(20)
    assert {reload(job).status for job in jobs} == {Status.COMPLETED}
    assert {reload(job).preemptions for job in batch} == {1}


def place_on(job, worker):
    with transaction() as session:
        session.execute(
            text("UPDATE jobs SET placed_on = :worker, rung_at = now() WHERE id = CAST(:id AS uuid)"),
            {"worker": worker.id, "id": job.id.removeprefix("job_")},
        )
