"""Running again what failed of a batch."""

from decimal import Decimal

import orjson
import pytest
from sqlalchemy import select, text

from app.batches import cancelling, queries, results, retrying
from app.batches.errors import BatchActive, BatchIdempotencyConflict, NothingToRetry
from app.batches.states import BatchStatus
from app.batches.tables import Batch
from app.db import transaction
from app.gate.errors import AccountFull
from app.jobs.errors import ModelNotFound
from app.jobs.tables import Job, JobEvent, Usage
from config.settings import settings
from tests.integration.batches.lines import again, caller_of, chat, complete, fail, start
from workers.batches import Running


@pytest.fixture
def alice(make_account):
    return make_account()


@pytest.fixture
def retry(alice):
    def run(batch, key=None):
        with transaction() as session:
            return retrying.retry(session, caller_of(alice), again(batch), key)

    return run


@pytest.fixture
def half_done(alice):
    """Line 1 was answered, 2 failed, 3 cannot be run, 4 was cancelled with the batch."""
    odd = chat(3) | {"body": {"model": "nobody"}}
    batch = start(
        alice, [chat(1), chat(2, metadata={"a": "b"}), odd, chat(4)], on_invalid="skip", metadata={"x": "y"}
    )
    complete(batch, 1)
    fail(batch, 2)
    with transaction() as session:
        cancelling.request(session, batch)
    Running().round()
    assert again(batch).finished_at is not None
    return again(batch)


def jobs_of(batch):
    with transaction() as session:
        return session.scalars(select(Job).where(Job.batch_id == batch.id).order_by(Job.line)).all()


def test_what_has_no_answer_runs_again_as_it_was_asked_for(half_done, retry):
    new = retry(half_done)
    assert (new.status, new.retry_of, new.labels) == (BatchStatus.IN_PROGRESS, half_done.id, {"x": "y"})
    assert (new.total, new.invalid, new.model, new.price_factor) == (2, 0, "simulated", Decimal("0.5"))
    assert new.expires_at > half_done.expires_at
    old = {job.line: job for job in jobs_of(half_done)}
    copies = jobs_of(new)
    assert [(job.line, job.custom_id) for job in copies] == [(2, "line-2"), (4, "line-4")]
    assert [job.id for job in copies] == sorted(job.id for job in copies)
    assert (new.estimate["lines"], new.estimate["invalid"]) == (2, 0)
    assert new.reserved_tokens == sum(job.reserved_tokens for job in copies)
    for job in copies:
        for name in (
            "request",
            "labels",
            "echo",
            "surface",
            "prompt_tokens",
            "reserved_tokens",
            "model",
            "tier",
        ):
            assert getattr(job, name) == getattr(old[job.line], name), name
        assert (job.status, job.attempt, job.output_tokens, job.input_tokens) == ("queued", 0, 0, 0)
        assert job.due_at == job.expires_at == job.order_at == new.expires_at
    with transaction() as session:
        logs = session.execute(
            select(JobEvent.type, JobEvent.seq).where(JobEvent.job_id.in_([j.id for j in copies]))
        )
        assert logs.all() == [("job.queued", 1)] * 2
        assert [e.type for e in queries.read_events(session, new.id, 0, 9)] == [
            "batch.validating",
            "batch.in_progress",
        ]


def test_the_old_batch_stays_and_each_pays_for_its_own(half_done, retry):
    before = list(results.error_lines(half_done))
    new = retry(half_done)
    complete(new, 2, "Two")
    complete(new, 4, "Four")
    Running().round()
    ended = again(new)
    assert (ended.status, ended.completed, ended.failed) == (BatchStatus.COMPLETED, 2, 0)
    assert [orjson.loads(line)["custom_id"] for line in results.output_lines(ended)] == ["line-2", "line-4"]
    assert list(results.error_lines(half_done)) == before
    for batch in (again(half_done), ended):
        ids = [job.id for job in jobs_of(batch)]
        with transaction() as session:
            rows = session.scalars(select(Usage).where(Usage.job_id.in_(ids))).all()
        assert (
            sum(row.input_tokens + row.output_tokens for row in rows)
            == batch.input_tokens + batch.output_tokens
        )
        assert sum(row.is_final for row in rows) == len(ids)


def test_a_key_gives_the_same_batch_again(half_done, retry, alice):
    first, second = retry(half_done, "k"), retry(half_done, "k")
    assert first.id == second.id
    assert retry(half_done).id != first.id
    other = start(alice, [chat(1)])
    with pytest.raises(BatchIdempotencyConflict):
        retry(other, "k")


def test_a_batch_that_runs_or_has_nothing_that_failed_is_not_run_again(alice, retry):
    batch = start(alice, [chat(1)])
    with pytest.raises(BatchActive):
        retry(batch)
    complete(batch, 1)
    Running().round()
    with pytest.raises(NothingToRetry):
        retry(batch)


def test_nothing_is_stored_where_the_gate_refuses_or_the_model_is_gone(half_done, retry, monkeypatch):
    def batches():
        with transaction() as session:
            return session.query(Batch).count()

    with monkeypatch.context() as patch:
        patch.setattr(
            "app.accounts.limits.settings", lambda: settings().model_copy(update={"max_waiting_jobs": 1})
        )
        with pytest.raises(AccountFull):
            retry(half_done)
    with transaction() as session:
        session.execute(text("UPDATE jobs SET model = 'gone'"))
    with pytest.raises(ModelNotFound):
        retry(half_done)
    assert batches() == 1
