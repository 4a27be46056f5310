"""A batch whose lines are jobs: how it stands, and how it ends."""

from decimal import Decimal

import orjson
import pytest
from sqlalchemy import func, select, text

from app.batches import cancelling, counting, finalizing, queries, results
from app.batches.states import BatchStatus
from app.batches.tables import Batch
from app.db import transaction
from app.files.storage import storage
from app.files.tables import StoredFile
from app.jobs import lifecycle, rescue
from app.jobs.tables import Job, Usage
from app.redis import client
from app.streams import tail
from config.settings import settings
from tests.integration.batches.lines import (
    PREFILL,
    again,
    ask_for,
    chat,
    claim,
    complete,
    fail,
    job_of,
    start,
    stop,
)
from workers.batches import Running

NO_LINE = {"custom_id": "odd", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "nobody"}}


@pytest.fixture
def alice(make_account):
    return make_account()


@pytest.fixture
def running():
    """The thread that sees batches on, a round at a time."""
    return Running()


def count(batch):
    with transaction() as session:
        return counting.count(session, [again(batch)])[batch.id]


def content(file_id):
    """The lines of a file, parsed one by one as a strict reader does."""
    with transaction() as session:
        file = session.get_one(StoredFile, file_id)
    whole = b"".join(storage().read(file.digest))
    assert whole.endswith(b"\n")
    assert len(whole) == file.bytes
    return [orjson.loads(line) for line in whole.decode().splitlines()]


def events(batch):
    with transaction() as session:
        return [event.type for event in queries.read_events(session, batch.id, 0, 100)]


def expire_all(batch):
    with transaction() as session:
        session.execute(
            text("UPDATE jobs SET expires_at = now(), due_at = now(), deadline_at = least(deadline_at, now())")
        )
        for verb in (rescue.expire, rescue.stop_overdue):
            verb(session, 100)


def test_counts_are_of_what_is_so_at_that_moment(alice):
    batch = start(alice, [*(chat(n) for n in range(1, 6)), NO_LINE], on_invalid="skip")
    assert count(batch) == counting.Counts(total=6, failed=1, queued=5)
    complete(batch, 1)
    fail(batch, 2)
    claim(batch, 3, "So far")
    found = count(batch)
    assert (found.total, found.completed, found.failed, found.running, found.queued) == (6, 1, 2, 1, 2)
    assert (found.input_tokens, found.cached_tokens, found.output_tokens) == (20, 8, 5)
    # 0.10 a million of input, 0.05 where it was cached, 0.40 of output, at half price.
    assert (
        found.cost
        == Decimal("0.5") * (12 * Decimal("0.10") + 8 * Decimal("0.05") + 5 * Decimal("0.40")) / 1_000_000
    )


def test_a_batch_ends_with_its_last_line_and_says_then_what_it_said_before(alice, running):
    batch = start(
        alice, [chat(1), chat(2), chat(3)], output_expires_after={"anchor": "created_at", "seconds": 7200}
    )
    complete(batch, 2, "Two")
    fail(batch, 3)
    running.round()
    assert again(batch).status is BatchStatus.IN_PROGRESS
    complete(batch, 1, "One")
    before = count(batch)
    running.round()
    ended = again(batch)
    assert ended.status is BatchStatus.COMPLETED
    assert count(batch) == before
    assert (before.total, before.completed, before.failed) == (3, 2, 1)
    assert [line["custom_id"] for line in content(ended.output_file_id)] == ["line-1", "line-2"]
    (error,) = content(ended.error_file_id)
    assert (error["custom_id"], error["error"], error["response"]["status_code"]) == ("line-3", None, 500)
    assert error["response"]["body"]["error"]["code"]
    assert events(batch) == [
        f"batch.{n}" for n in ("validating", "in_progress", "progress", "finalizing", "completed")
    ]
    with transaction() as session:
        left = session.scalar(
            select(StoredFile.expires_at - func.now()).where(StoredFile.id == ended.output_file_id)
        )
        assert session.scalar(select(func.sum(Usage.output_tokens))) == ended.output_tokens == 6
    assert 7000 < left.total_seconds() <= 7200


def test_an_answer_is_in_the_form_of_its_endpoint_on_one_line(alice, running):
    batch = start(alice, [chat(1)])
    complete(batch, 1, "a\u2028b\u2029c\u0085d\ne")
    running.round()
    ended = again(batch)
    (line,) = content(ended.output_file_id)
    job = job_of(batch, 1)
    assert line["id"] == f"batch_req_{job.id.removeprefix('job_')}"
    assert (line["response"]["status_code"], line["response"]["request_id"], line["error"]) == (
        200,
        job.id,
        None,
    )
    body = line["response"]["body"]
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["message"]["content"] == "a\u2028b\u2029c\u0085d\ne"
    assert ended.error_file_id is None


def test_lines_that_cannot_be_run_are_among_the_errors_in_their_place(alice, running):
    batch = start(alice, [chat(1), NO_LINE, chat(3)], on_invalid="skip")
    fail(batch, 1)
    fail(batch, 3)
    running.round()
    ended = again(batch)
    errors = content(ended.error_file_id)
    assert [line["custom_id"] for line in errors] == ["line-1", "odd", "line-3"]
    assert (errors[1]["line"], errors[1]["response"]["status_code"]) == (2, 400)
    assert ended.output_file_id is None
    assert (ended.total, ended.completed, ended.failed) == (3, 0, 3)


def test_what_has_ended_can_be_read_while_the_rest_runs(alice):
    batch = start(alice, [chat(1), chat(2), chat(3)])
    complete(batch, 2)
    assert [orjson.loads(line)["custom_id"] for line in results.output_lines(batch)] == ["line-2"]
    assert list(results.error_lines(batch)) == []


def test_pages_of_lines_follow_each_other_without_a_gap(alice, monkeypatch):
    monkeypatch.setattr(results, "LINES_LISTED", 3)
    monkeypatch.setattr(results, "PAGE_LINES", 2)
    batch = start(
        alice, [chat(n) if n % 2 else NO_LINE | {"custom_id": f"{n}"} for n in range(1, 16)], on_invalid="skip"
    )
    for number in range(1, 16, 2):
        fail(batch, number)
    found = [orjson.loads(line)["custom_id"] for line in results.error_lines(batch)]
    assert found == [f"line-{n}" if n % 2 else f"{n}" for n in range(1, 16)]


def test_the_end_of_the_window_keeps_what_there_is(alice, running):
    batch = start(alice, [chat(1), chat(2), chat(3)])
    complete(batch, 1)
    job = claim(batch, 2, "Half")
    with transaction() as session:
        lifecycle.hand_back(session, job.id, job.lease_id, PREFILL, lifecycle.RequeueReason.PREEMPTED)
    expire_all(batch)
    running.round()
    ended = again(batch)
    assert (ended.status, ended.completed, ended.failed) == (BatchStatus.EXPIRED, 1, 2)
    partial, unstarted = content(ended.error_file_id)
    assert (partial["error"]["code"], unstarted["error"]["code"]) == ("batch_expired", "batch_expired")
    assert partial["response"]["status_code"] == 504
    assert partial["response"]["body"]["choices"][0]["message"]["content"] == "Half"
    assert unstarted["response"] is None


def test_a_batch_is_cancelled_at_once_while_its_lines_are_checked(alice, running):
    batch = ask_for(alice, [chat(1)])
    with transaction() as session:
        assert cancelling.request(session, batch).status is BatchStatus.CANCELLED
    running.round()
    with transaction() as session:
        assert cancelling.request(session, again(batch)).status is BatchStatus.CANCELLED
    assert events(batch) == ["batch.validating", "batch.cancelled"]


def test_cancelling_tells_the_workers_and_keeps_partial_output(alice, running):
    batch = start(alice, [chat(n) for n in range(1, 5)])
    complete(batch, 1)
    job = claim(batch, 2, "Part")
    with transaction() as session:
        lifecycle.request_cancel(session, job_of(batch, 3).id)
    with client().pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(tail.CANCEL_CHANNEL)
        heard.get_message(timeout=1)
        with transaction() as session:
            assert cancelling.request(session, batch).status is BatchStatus.CANCELLING
        assert heard.get_message(timeout=5)["data"].decode() == job.id
    running.round()
    assert again(batch).status is BatchStatus.CANCELLING
    assert count(batch).queued == 0
    stop(batch, 2)
    running.round()
    ended = again(batch)
    assert (ended.status, ended.completed, ended.failed) == (BatchStatus.CANCELLED, 1, 3)
    part, alone, waited = content(ended.error_file_id)
    assert [line["error"]["code"] for line in (part, alone, waited)] == [
        "batch_cancelled",
        "job_cancelled",
        "batch_cancelled",
    ]
    assert part["response"]["status_code"] == 499
    assert part["response"]["body"]["choices"][0]["message"]["content"] == "Part"
    assert (alone["response"], waited["response"]) == (None, None)
    with transaction() as session:
        used = session.execute(select(func.sum(Usage.input_tokens), func.sum(Usage.output_tokens))).one()
    assert tuple(used) == (ended.input_tokens, ended.output_tokens) == (20, 9)


def test_a_line_that_starts_while_its_batch_is_cancelled_is_stopped_too(alice, running):
    batch = start(alice, [chat(1)])
    with transaction() as session:
        cancelling.request(session, batch)
    job = claim(batch, 1)
    running.round()
    with transaction() as session:
        assert session.get_one(Job, job.id).cancel_requested_at is not None


def test_two_that_finalize_at_once_keep_one_pair_of_files(alice):
    batch = start(alice, [chat(1), chat(2)])
    complete(batch, 1)
    fail(batch, 2)
    with transaction() as session:
        begun = finalizing.begin(session, batch.id)
    assert finalizing.finalize(begun) is not None
    assert finalizing.finalize(begun) is None
    with transaction() as session:
        assert session.scalar(select(func.count()).where(StoredFile.purpose == "batch_output")) == 2
        assert finalizing.begin(session, batch.id) is None


def test_results_are_kept_where_an_account_may_upload_no_more(alice, running, monkeypatch):
    batch = start(alice, [chat(1)])
    complete(batch, 1)
    monkeypatch.setattr(finalizing.shelf, "settings", lambda: settings().model_copy(update={"max_files": 1}))
    running.round()
    assert again(batch).status is BatchStatus.COMPLETED


def test_a_batch_that_cannot_be_finished_holds_up_no_other(alice, running, tmp_path, monkeypatch):
    stuck, fine = start(alice, [chat(1)]), start(alice, [chat(1), chat(2)])
    complete(stuck, 1, "x" * 50)
    monkeypatch.setattr(
        "app.files.spool.settings", lambda: settings().model_copy(update={"var_dir": tmp_path / "f"})
    )
    (tmp_path / "f").write_text("in the way")
    with transaction() as session:
        cancelling.request(session, fine)
    running.round()
    assert again(stuck).status is BatchStatus.FINALIZING
    assert count(fine).queued == 0
    monkeypatch.undo()
    Running().round()
    assert (again(stuck).status, again(fine).status) == (BatchStatus.COMPLETED, BatchStatus.CANCELLED)


def test_a_batch_is_told_of_at_most_once_in_a_while_and_only_when_it_moved(alice, running, monkeypatch):
    batch = start(alice, [chat(n) for n in range(1, 6)])
    for _ in range(3):
        running.round()
    complete(batch, 1)
    running.round()
    assert events(batch).count("batch.progress") == 1
    with transaction() as session:
        (first,) = queries.read_events(session, batch.id, 2, 10)
    assert first.data["request_counts"] == {"total": 5, "completed": 0, "failed": 0}
    monkeypatch.setattr(
        "workers.batches.settings", lambda: settings().model_copy(update={"batch_progress_seconds": 0})
    )
    later = Running()
    for _ in range(2):
        later.round()
    assert events(batch).count("batch.progress") == 2


def test_thousands_of_waiting_lines_are_cancelled_in_a_round(alice, running):
    batch = start(alice, [chat(n) for n in range(1, 2502)])
    with transaction() as session:
        cancelling.request(session, batch)
    running.round()
    with transaction() as session:
        ended = session.get_one(Batch, batch.id)
    assert (ended.status, ended.failed, ended.cost) == (BatchStatus.CANCELLED, 2501, 0)
