from concurrent.futures import ThreadPoolExecutor

import pytest

from app.db import transaction
from app.jobs.errors import IdempotencyConflict
from app.jobs.log import read_log
from app.jobs.states import Status


def test_a_submitted_job_is_queued_and_its_log_begins_at_one(make_job):
    job = make_job()
    with transaction() as session:
        (first,) = read_log(session, job.id, 0, 10)
    assert job.status is Status.QUEUED
    assert (first.seq, first.first_seq, first.type) == (1, 1, "job.queued")


def test_the_same_key_and_body_give_the_same_job(make_job):
    assert make_job(idempotency_key="k").id == make_job(idempotency_key="k").id


def test_the_same_key_with_another_body_is_refused_and_names_the_first_job(make_job):
    first = make_job(idempotency_key="k")
    with pytest.raises(IdempotencyConflict, match=first.id):
        make_job(idempotency_key="k", seed=7)


def test_keys_of_different_accounts_do_not_meet(make_job):
    assert make_job(idempotency_key="k").id != make_job(account="mallory", idempotency_key="k").id


def test_eight_submissions_at_once_with_one_key_make_one_job(make_job):
    make_job()  # the account exists
    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(lambda _: make_job(idempotency_key="k"), range(8)))
    assert len({job.id for job in jobs}) == 1
