"""A batch is validated: its lines become jobs, or it fails and says why."""

import threading
from dataclasses import replace
from typing import Any

import orjson
import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy import func, select, text, update
from sqlalchemy.exc import OperationalError

from app.accounts.tables import Account
from app.batches import enqueuing, joining, lifecycle
from app.batches import intake as intakes
from app.batches.intake import Intake
from app.batches.states import BatchStatus
from app.batches.tables import Batch, BatchEvent, BatchFault
from app.db import transaction
from app.files.storage import storage
from app.gate.admission import publish
from app.jobs.states import Status
from app.jobs.tables import Job, JobEvent
from app.line.measures import Measure
from app.line.tables import LineState
from app.redis import client
from config.catalogue import catalogue
from config.queues import Tier, Window
from config.settings import settings
from tests.eventually import eventually
from tests.integration.batches.lines import again, ask_for, chat, start, upload
from tests.integration.gate.gate import MODEL as FAULTY
from tests.integration.gate.gate import measure

HOSTILE = 'a\tb\\N\\n\r\n\\.\u2028"é\U0001f600'


@pytest.fixture
def alice(make_account):
    return make_account("alice")


@pytest.fixture
def intake():
    made = Intake()
    yield made
    made.close()


def jobs_of(batch: Batch) -> list[Job]:
    with transaction() as session:
        return list(session.scalars(select(Job).where(Job.batch_id == batch.id).order_by(Job.line)))


def faults_of(batch: Batch) -> list[BatchFault]:
    with transaction() as session:
        return list(
            session.scalars(select(BatchFault).where(BatchFault.batch_id == batch.id).order_by(BatchFault.line))
        )


def events_of(batch: Batch) -> list[BatchEvent]:
    with transaction() as session:
        return list(
            session.scalars(select(BatchEvent).where(BatchEvent.batch_id == batch.id).order_by(BatchEvent.seq))
        )


def waiting_jobs(model: str = "simulated") -> int:
    """As the gate counts them."""
    return int(client().hget(f"lh:line:{model}:batch", "jobs") or 0)


def measure_of(model: str, **given: Any) -> Measure:
    return replace(measure(Tier.BATCH, **given), model=model)


def set_limits(account: Any, **limits: Any) -> None:
    with transaction() as session:
        session.execute(update(Account).where(Account.id == account.id).values(**limits))


def test_lines_become_jobs_in_their_order(alice):
    batch = start(alice, [chat(number) for number in range(1, 301)])
    assert (batch.status, batch.total, batch.invalid, batch.model) == (
        BatchStatus.IN_PROGRESS,
        300,
        0,
        "simulated",
    )
    assert batch.in_progress_at is not None
    jobs = jobs_of(batch)
    assert [(job.line, job.custom_id) for job in jobs] == [(n, f"line-{n}") for n in range(1, 301)]
    assert [job.id for job in jobs] == sorted(job.id for job in jobs)
    assert {job.status for job in jobs} == {Status.QUEUED}
    assert {(job.tier, job.account_id, job.key_id) for job in jobs} == {(Tier.BATCH, alice.id, batch.key_id)}
    assert {(job.due_at, job.expires_at, job.order_at) for job in jobs} == {(batch.expires_at,) * 3}
    assert {job.price_factor for job in jobs} == {batch.price_factor}
    assert batch.prompt_tokens == sum(job.prompt_tokens for job in jobs) > 0
    assert batch.reserved_tokens == sum(job.reserved_tokens for job in jobs) == batch.prompt_tokens + 300 * 8
    assert waiting_jobs() == 300


def test_every_line_begins_its_log_and_makes_no_webhook(alice):
    set_limits(alice, listens_to=["job.queued"])
    batch = start(alice, [chat(1), chat(2)])
    with transaction() as session:
        events = session.execute(
            select(JobEvent.seq, JobEvent.first_seq, JobEvent.type, JobEvent.data, JobEvent.is_due).join(
                Job, Job.id == JobEvent.job_id
            )
        ).all()
    assert events == [(1, 1, "job.queued", {"attempt": 0}, False)] * 2
    assert [event.type for event in events_of(batch)] == ["batch.validating", "batch.in_progress"]
    assert events_of(batch)[1].data == {"request_counts": {"total": 2, "completed": 0, "failed": 0}}


def test_a_line_is_the_job_that_the_same_request_makes(alice):
    body = {
        "metadata": {"a": "b\\c"},
        "session_id": HOSTILE.strip(),
        "store": False,
        "seed": 7,
        "user": "u\tv",
        "messages": [{"role": "user", "content": HOSTILE}],
    }
    (job,) = jobs_of(start(alice, [{**chat(1, **body), "custom_id": HOSTILE}]))
    assert (job.custom_id, job.session_id, job.labels) == (HOSTILE, HOSTILE.strip(), {"a": "b\\c"})
    assert (job.is_stored, job.echo["user"], job.request["seed"]) == (False, "u\tv", 7)
    assert job.request["input"][0]["content"] == HOSTILE
    assert (job.webhook_url, job.idempotency_key, job.is_long) == (None, None, False)


def test_a_batch_that_is_wanted_soonest_stands_where_it_came(alice):
    (job,) = jobs_of(start(alice, [chat(1)], completion_window="soonest"))
    assert (job.due_at, job.expires_at, job.order_at) == (None, None, job.created_at)


def test_lines_may_be_of_several_models(alice):
    batch = start(alice, [chat(1), chat(2, model="faulty")])
    assert (batch.model, batch.total) == (None, 2)
    assert (waiting_jobs(), waiting_jobs("faulty")) == (1, 1)
    assert batch.estimate["cost_max"] is None


def test_one_bad_line_fails_the_batch_and_all_are_named(alice):
    lines = [chat(1), chat(2, model="nope"), chat(3), chat(1)]
    batch = start(alice, lines)
    assert (batch.status, batch.total, batch.invalid, batch.failed) == (BatchStatus.FAILED, 4, 2, 2)
    assert (batch.error_code, batch.error_message) == ("invalid_lines", "2 of 4 lines cannot be run.")
    assert [(fault.line, fault.code, fault.param, fault.custom_id) for fault in faults_of(batch)] == [
        (2, "model_not_found", "body.model", "line-2"),
        (4, "duplicate_custom_id", "custom_id", "line-1"),
    ]
    assert jobs_of(batch) == []
    assert events_of(batch)[-1].type == "batch.failed"
    assert events_of(batch)[-1].data["error"]["code"] == "invalid_lines"
    assert waiting_jobs() == 0


def test_bad_lines_may_be_skipped(alice):
    batch = start(alice, [chat(1), chat(2, model="nope"), chat(3)], on_invalid="skip")
    assert (batch.status, batch.total, batch.invalid) == (BatchStatus.IN_PROGRESS, 3, 1)
    assert [job.line for job in jobs_of(batch)] == [1, 3]
    assert [fault.line for fault in faults_of(batch)] == [2]


def test_a_batch_needs_one_line_that_can_run(alice):
    batch = start(alice, [chat(1, model="nope")], on_invalid="skip")
    assert (batch.status, batch.error_code, batch.total, batch.invalid) == (
        BatchStatus.FAILED,
        "invalid_lines",
        1,
        1,
    )


def validate(account: Any, content: bytes, **wanted: Any) -> Batch:
    batch = ask_for(account, [], **{"input_file_id": upload(account, content), **wanted})
    made = Intake()
    made.run(batch.id)
    made.close()
    return again(batch)


def test_a_file_of_blank_lines_has_none(alice):
    batch = validate(alice, b"\n \r\n\t\n")
    assert (batch.status, batch.error_code) == (BatchStatus.FAILED, "empty_file")
    assert [(fault.line, fault.code) for fault in faults_of(batch)] == [(0, "empty_file")]


def test_lines_are_numbered_as_an_editor_does(alice):
    content = b"\xef\xbb\xbf\r\n" + orjson.dumps(chat(1)) + b"\r\n\n" + orjson.dumps(chat(2))
    assert [job.line for job in jobs_of(validate(alice, content))] == [2, 4]


def test_a_line_that_is_no_json_says_where(alice):
    batch = validate(alice, orjson.dumps(chat(1)) + b'\n{"custom_id" "x"}\n')
    (fault,) = faults_of(batch)
    assert (fault.line, fault.column, fault.code, fault.param) == (2, 14, "invalid_json_line", None)


def test_a_file_of_too_many_lines_fails(alice, monkeypatch):
    monkeypatch.setitem(settings().__dict__, "max_batch_lines", 2)
    assert start(alice, [chat(1), chat(2)]).status is BatchStatus.IN_PROGRESS
    batch = start(alice, [chat(1), chat(2, model="nope"), chat(3)])
    assert (batch.status, batch.error_code) == (BatchStatus.FAILED, "too_many_lines")
    assert [fault.line for fault in faults_of(batch)] == [0, 2]


def test_a_line_may_be_too_long(alice, monkeypatch):
    monkeypatch.setitem(settings().__dict__, "max_line_bytes", 500)
    long = chat(2, messages=[{"role": "user", "content": "x" * 600}])
    batch = start(alice, [chat(1), long, chat(3)], on_invalid="skip")
    assert [(fault.line, fault.code) for fault in faults_of(batch)] == [(2, "line_too_long")]
    assert [job.line for job in jobs_of(batch)] == [1, 3]


def test_a_dry_run_says_what_it_would_take_and_runs_nothing(alice):
    batch = start(alice, [chat(1), chat(2)], dry_run=True)
    assert (batch.status, batch.total, batch.invalid) == (BatchStatus.COMPLETED, 2, 0)
    assert batch.estimate["lines"] == 2
    assert batch.estimate["input_tokens"] == batch.prompt_tokens > 0
    assert batch.estimate["max_output_tokens"] == 16
    assert float(batch.estimate["cost_max"]) == pytest.approx(
        (batch.prompt_tokens * 0.10 + 16 * 0.40) / 1e6 * 0.5
    )
    assert jobs_of(batch) == []
    assert waiting_jobs() == 0
    assert start(alice, [chat(1), chat(2, model="nope")], dry_run=True).status is BatchStatus.FAILED


def test_a_full_line_lets_a_batch_wait_without_reading_it_again(alice, intake, monkeypatch):
    monkeypatch.setattr(intakes, "PARKED_SECONDS", 0.0)
    limits = catalogue()["simulated"].line[Tier.BATCH]
    full = measure_of("simulated", jobs=limits.max_jobs)
    publish(client(), [full], {})
    batch = ask_for(alice, [chat(1)])
    assert intake.round()
    assert again(batch).status is BatchStatus.VALIDATING
    # It was read already: what its file holds does not matter any more.
    storage().delete(batch.input_digest)
    publish(client(), [measure_of("simulated")], {})
    assert intake.round()
    assert again(batch).status is BatchStatus.IN_PROGRESS
    assert len(jobs_of(batch)) == 1


def test_a_batch_that_waits_for_its_line_holds_up_no_other(alice, intake):
    limits = catalogue()[FAULTY].line[Tier.BATCH]
    publish(client(), [measure(Tier.BATCH, jobs=limits.max_jobs)], {})
    waits = ask_for(alice, [chat(1, model=FAULTY)])
    runs = ask_for(alice, [chat(1)])
    assert intake.round()
    assert intake.round()
    assert not intake.round()
    assert again(waits).status is BatchStatus.VALIDATING
    assert again(runs).status is BatchStatus.IN_PROGRESS


def test_a_draining_line_fails_a_batch(alice):
    publish(client(), [measure_of("simulated", state=LineState.DRAINING)], {})
    batch = start(alice, [chat(1)])
    assert (batch.status, batch.error_code) == (BatchStatus.FAILED, "line_draining")
    assert [(fault.line, fault.code) for fault in faults_of(batch)] == [(0, "line_draining")]


def test_an_account_s_limit_fails_a_batch_with_its_numbers(alice):
    set_limits(alice, max_waiting_jobs=2)
    batch = start(alice, [chat(1), chat(2), chat(3)])
    assert (batch.status, batch.error_code) == (BatchStatus.FAILED, "line_full")
    assert batch.error_message == "This batch needs 3 jobs; your account may have 2 waiting in a line."
    assert waiting_jobs() == 0


def test_of_several_models_all_lines_join_or_none(alice):
    publish(client(), [measure(Tier.BATCH, state=LineState.DRAINING)], {})
    batch = start(alice, [chat(1), chat(2, model=FAULTY)])
    assert batch.status is BatchStatus.FAILED
    assert waiting_jobs() == 0


def test_a_window_that_cannot_be_met_fails_a_batch(alice):
    waits = {alice.id: (1, 100_000, 1.0, {Window.ONE_HOUR: 100_000})}
    busy = measure_of("simulated", accounts=waits, jobs=1, tokens=100_000, tokens_per_second=1.0)
    publish(client(), [busy], {})
    batch = start(alice, [chat(1)], completion_window="1h")
    assert (batch.status, batch.error_code) == (BatchStatus.FAILED, "completion_window_unavailable")


def test_a_window_that_ended_before_its_turn_fails_a_batch(alice, intake):
    batch = ask_for(alice, [chat(1)])
    with transaction() as session:
        session.execute(text("UPDATE batches SET expires_at = now() - interval '1 second'"))
    intake.run(batch.id)
    assert (again(batch).status, again(batch).error_code) == (BatchStatus.FAILED, "batch_expired")


def test_an_input_that_is_gone_fails_a_batch(alice, intake):
    batch = ask_for(alice, [chat(1)])
    storage().delete(batch.input_digest)
    intake.run(batch.id)
    assert (again(batch).status, again(batch).error_code) == (BatchStatus.FAILED, "input_file_not_found")


def test_a_batch_that_was_cancelled_meanwhile_leaves_nothing(alice):
    batch = ask_for(alice, [chat(1)])
    prepared = intakes.prepare(batch.id, lambda: False)
    with transaction() as session:
        lifecycle.advance(session, batch.id, {BatchStatus.VALIDATING}, BatchStatus.CANCELLED)
    with pytest.raises(intakes.Late):
        intakes.conclude(prepared)
    prepared.spool.close()
    assert jobs_of(batch) == []
    assert waiting_jobs() == 0


def test_two_processes_at_the_same_batch_make_each_line_once(alice):
    batch = ask_for(alice, [chat(number) for number in range(100)])
    prepared = [intakes.prepare(batch.id, lambda: False) for _ in range(2)]
    late = []

    def conclude(one: Any) -> None:
        try:
            intakes.conclude(one)
        except intakes.Late:
            late.append(one)

    threads = [threading.Thread(target=conclude, args=(one,)) for one in prepared]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in prepared:
        one.spool.close()
    assert len(late) == 1
    assert len(jobs_of(batch)) == 100
    with transaction() as session:
        assert session.scalar(select(func.count()).select_from(JobEvent)) == 100
    assert waiting_jobs() == 100


def test_a_connection_that_breaks_while_lines_are_written_leaves_nothing(alice, intake):
    batch = ask_for(alice, [chat(number) for number in range(10)])
    first, second = (intakes.prepare(batch.id, lambda: False) for _ in range(2))
    errors = []

    def conclude() -> None:
        try:
            intakes.conclude(second)
        except OperationalError as error:
            errors.append(error)

    thread = threading.Thread(target=conclude)
    with transaction() as session:
        # The second waits for the first, and is cut off meanwhile.
        enqueuing.enqueue(session, batch.id, first.spool, batch.price_factor)
        thread.start()
        eventually(_cut_off_copy)
        thread.join()
        session.rollback()
    for one in (first, second):
        one.spool.close()
    assert len(errors) == 1
    assert (again(batch).status, jobs_of(batch), waiting_jobs()) == (BatchStatus.VALIDATING, [], 0)
    intake.run(batch.id)
    assert len(jobs_of(batch)) == 10


def _cut_off_copy() -> bool:
    """Whether a connection that waits to write lines was there to be ended."""
    with transaction() as session:
        found = session.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE query LIKE 'COPY jobs%' AND wait_event_type = 'Lock'"
            )
        )
        return bool(found.all())


def test_without_redis_lines_are_enqueued(alice, monkeypatch):
    gone = Redis(port=1, retry=Retry(NoBackoff(), 0))
    monkeypatch.setattr(joining, "client", lambda: gone)
    assert start(alice, [chat(1)]).status is BatchStatus.IN_PROGRESS


def test_a_process_that_stops_leaves_the_batch_to_the_next(alice):
    batch = ask_for(alice, [chat(1)])
    stopped = Intake(lambda: True)
    stopped.run(batch.id)
    stopped.close()
    assert (again(batch).status, jobs_of(batch)) == (BatchStatus.VALIDATING, [])


def test_accounts_take_turns(alice, make_account, intake):
    first = [ask_for(alice, [chat(1)]) for _ in range(2)]
    other = ask_for(make_account("mallory"), [chat(1)])
    assert intake.round()
    assert intake.round()
    statuses = [again(batch).status for batch in (*first, other)]
    assert statuses == [BatchStatus.IN_PROGRESS, BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS]


def test_what_nobody_expected_of_one_batch_holds_up_no_other(alice, intake):
    broken, fine = ask_for(alice, [chat(1)]), ask_for(alice, [chat(1)])
    with transaction() as session:
        session.execute(update(Batch).where(Batch.id == broken.id).values(input_digest="x" * 64))
    # What is there cannot be read.
    (settings().var_dir / "files" / "xx" / ("x" * 64)).mkdir(parents=True, exist_ok=True)
    assert intake.round()
    assert intake.round()
    assert (again(broken).status, again(fine).status) == (BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS)
