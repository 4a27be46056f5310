from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import text

from app.db import transaction
from app.jobs import lifecycle
from app.jobs.states import RequeueReason, Status


def test_a_claim_takes_the_job_with_a_fresh_lease(make_job, claim):
    move = claim(make_job())
    assert move.job.status is Status.IN_PROGRESS
    assert move.job.attempt == 1
    assert move.job.lease_id
    assert move.event.type == "job.in_progress"


def test_of_eight_claimers_exactly_one_wins(make_job, claim):
    job = make_job()
    with ThreadPoolExecutor(8) as pool:
        moves = list(pool.map(lambda n: claim(job, worker=f"worker-{n}"), range(8)))
    assert sum(move is not None for move in moves) == 1


def test_a_finished_or_cancelled_job_is_not_to_be_had(make_job, claim, do):
    job = make_job()
    do(lifecycle.request_cancel, job.id)
    assert claim(job) is None


def test_a_job_whose_time_to_start_has_passed_is_not_to_be_had(make_job, claim):
    job = make_job(expires_after_seconds=1)
    with transaction() as session:
        session.execute(text("UPDATE jobs SET expires_at = now() - interval '1 s'"))
    assert claim(job) is None


def test_the_total_time_counts_from_the_first_claim(make_job, claim, do):
    first = claim(make_job(timeouts={"total_seconds": 50})).job
    do(lifecycle.hand_back, first.id, first.lease_id, lifecycle.Prefill(), RequeueReason.WORKER_STOPPING)
    second = claim(first).job
    assert (first.deadline_at - first.started_at).total_seconds() == 50
    assert (second.started_at, second.deadline_at) == (first.started_at, first.deadline_at)


def test_a_beat_keeps_the_lease_and_tells_of_a_cancel(make_job, claim, do):
    kept, cancelled, lost = (claim(make_job()).job for _ in range(3))
    do(lifecycle.request_cancel, cancelled.id)
    do(lifecycle.hand_back, lost.id, lost.lease_id, lifecycle.Prefill(), RequeueReason.WORKER_STOPPING)
    held = do(lifecycle.renew, [kept.lease_id, cancelled.lease_id, lost.lease_id], 60.0)
    assert held == {kept.lease_id: False, cancelled.lease_id: True}


def test_an_expired_lease_that_nobody_broke_is_still_held(make_job, claim, do):
    job = claim(make_job(), lease_seconds=0.0).job
    assert do(lifecycle.renew, [job.lease_id], 60.0) == {job.lease_id: False}
