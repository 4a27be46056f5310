"""How a job ends under its lease, and that nothing else can end it."""

import uuid

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from app.db import transaction
from app.jobs import lifecycle
from app.jobs.lifecycle import Prefill
from app.jobs.log import read_output
from app.jobs.states import IncompleteReason, RequeueReason, Status

VERBS = {
    Status.COMPLETED: (lifecycle.complete, ()),
    Status.INCOMPLETE: (lifecycle.stop_early, (IncompleteReason.TOTAL_TIMEOUT,)),
    Status.FAILED: (lifecycle.fail, ("invalid_prompt", "No.")),
    Status.CANCELLED: (lifecycle.cancel, ()),
    Status.QUEUED: (lifecycle.hand_back, (RequeueReason.WORKER_STOPPING,)),
}


@pytest.mark.parametrize("status", VERBS)
def test_a_lease_holder_ends_its_job(make_job, claim, store, do, status):
    job = claim(make_job()).job
    store(job, 3, "abc")
    verb, args = VERBS[status]
    move = do(verb, job.id, job.lease_id, Prefill(5, 2, 0.1), *args)
    assert move.job.status is status
    assert (move.job.finished_at is not None) == status.is_terminal
    assert move.job.lease_id is None
    assert (move.job.input_tokens, move.job.cached_tokens) == (5, 2)
    assert move.event.seq == 4
    if status.is_terminal:
        assert move.event.data["usage"]["output_tokens"] == 3


@pytest.mark.parametrize("status", VERBS)
def test_a_stale_worker_changes_nothing(make_job, claim, do, status):
    job = claim(make_job()).job
    verb, args = VERBS[status]
    assert do(verb, job.id, str(uuid.uuid4()), Prefill(), *args) is None
    assert do(lifecycle.renew, [job.lease_id], 9.0) == {job.lease_id: False}


def test_a_job_ends_once(make_job, claim, do):
    job = claim(make_job()).job
    assert do(lifecycle.complete, job.id, job.lease_id, Prefill())
    assert do(lifecycle.cancel, job.id, job.lease_id, Prefill()) is None


def test_reading_the_output_so_far_again_is_not_input(make_job, claim, do):
    """A later attempt's prefill covers earlier output: the first attempt's counts stay."""
    job = claim(make_job()).job
    do(lifecycle.note_prefill, {job.lease_id: Prefill(10, 4, 0.5)})
    do(lifecycle.hand_back, job.id, job.lease_id, Prefill(10, 4, 0.9), RequeueReason.WORKER_STOPPING)
    again = claim(job).job
    move = do(lifecycle.complete, again.id, again.lease_id, Prefill(10, 99, 0.1))
    assert (move.job.input_tokens, move.job.cached_tokens) == (10, 4)
    assert move.job.first_token_at < again.lease_expires_at


def test_a_job_to_be_cancelled_is_not_handed_back_but_ends(make_job, claim, do):
    job = claim(make_job()).job
    do(lifecycle.request_cancel, job.id)
    move = do(lifecycle.hand_back, job.id, job.lease_id, Prefill(), RequeueReason.WORKER_STOPPING)
    assert move.job.status is Status.CANCELLED


def test_a_restart_leaves_the_void_output_in_the_log_alone(make_job, claim, store, do):
    job = claim(make_job()).job
    store(job, 3, "void")
    rewind = do(lifecycle.restart, job.id, job.lease_id)
    assert (rewind.type, rewind.seq, rewind.data) == ("output.rewind", 4, {"offset": 0})
    store(job, 5, "kept")
    move = do(lifecycle.complete, job.id, job.lease_id, Prefill())
    with transaction() as session:
        assert read_output(session, move.job).text == "kept"
    assert move.job.output_tokens == 4


@pytest.mark.parametrize(
    "nonsense",
    [
        "status = 'completed'",
        "finished_at = now()",
        "status = 'in_progress'",
        "status = 'thinking'",
        "error_code = 'x', error_message = 'y'",
        "incomplete_reason = 'x'",
        "tier = 'express'",
        "lease_id = gen_random_uuid()",
    ],
)
def test_the_database_refuses_nonsense(make_job, nonsense):
    make_job()
    with pytest.raises(IntegrityError), transaction() as session:
        session.execute(text(f"UPDATE jobs SET {nonsense}"))
