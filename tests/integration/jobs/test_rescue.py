"""What becomes of a job whose worker vanished."""

from datetime import timedelta

from sqlalchemy import text

from app.db import transaction
from app.jobs import lifecycle, rescue
from app.jobs.log import UNSTORED_SEQ_LIMIT, read_log, read_output
from app.jobs.queries import find_job, find_status
from app.jobs.states import IncompleteReason, Status
from tests.integration.jobs.conftest import segment


def test_a_lost_job_goes_back_into_the_line_with_what_was_shown(make_job, claim, store, lose):
    job = claim(make_job()).job
    store(job, 3, "stored")
    move = lose(job, tail=[segment(job, 4, " shown", 6), segment(job, 5, " too", 12)])
    assert move.job.status is Status.QUEUED
    with transaction() as session:
        assert read_output(session, job).text == "stored shown too"
    assert move.event.first_seq == 6
    assert move.event.seq == 6 + UNSTORED_SEQ_LIMIT
    assert move.event.data == {"attempt": 1, "reason": "worker_lost", "output_offset": 16}


def test_a_tail_that_does_not_continue_what_is_stored_is_left_alone(make_job, claim, store, lose):
    job = claim(make_job()).job
    store(job, 3, "stored")
    lose(job, tail=[segment(job, 5, "after a hole", 9)])
    with transaction() as session:
        assert read_output(session, job).text == "stored"


def test_the_late_output_of_a_lost_worker_is_refused(make_job, claim, store, lose):
    job = claim(make_job()).job
    lose(job)
    assert store(job, 3, "late") == set()


def test_a_worker_that_renewed_in_time_keeps_its_job(make_job, claim, do):
    job = claim(make_job()).job
    assert do(rescue.rescue, job.id, job.lease_id, [], 3) is None
    assert do(rescue.find_lost, 10) == []


def test_the_log_has_no_hole_after_a_rescue(make_job, claim, store, lose):
    job = claim(make_job()).job
    store(job, 3, "a")
    lose(job)
    claim(job)
    with transaction() as session:
        rows = read_log(session, job.id, 0, 100)
    ends = [0, *(row.seq for row in rows)]
    assert [row.first_seq for row in rows] == [end + 1 for end in ends[:-1]]
    assert rows[-1].type == "job.in_progress"


def test_a_job_that_kills_its_worker_each_time_fails_after_max_attempts(make_job, claim, lose):
    job = make_job()
    statuses = []
    for _ in range(3):
        with transaction() as session:
            session.execute(text("UPDATE jobs SET available_at = now()"))
        statuses.append(lose(claim(job).job).job.status)
    assert statuses == [Status.QUEUED, Status.QUEUED, Status.FAILED]
    with transaction() as session:
        failed = find_job(session, job.id)
    assert failed.error_code == "worker_lost"
    assert "died 3 times in a row" in failed.error_message


def test_an_attempt_that_made_progress_is_not_charged(make_job, claim, store, lose):
    job = make_job()
    for attempt in range(1, 6):
        lost = claim(job).job
        store(lost, lifecycle_seq(lost) + 1, "x", offset=attempt - 1)
        assert lose(lost).job.lost_attempts == 0


def lifecycle_seq(job):
    from app.jobs.log import last_seq

    with transaction() as session:
        return last_seq(session, job.id)


def test_a_lost_job_that_was_to_be_cancelled_ends_with_its_partial(make_job, claim, store, lose, do):
    job = claim(make_job()).job
    store(job, 3, "partial")
    do(lifecycle.request_cancel, job.id)
    move = lose(job)
    assert move.job.status is Status.CANCELLED
    assert move.job.output_tokens == 7


def test_a_job_that_was_never_started_expires(make_job, do):
    job = make_job(expires_after_seconds=1)
    with transaction() as session:
        session.execute(text("UPDATE jobs SET expires_at = now() - interval '1 s'"))
    (event,) = do(rescue.expire, 10)
    assert event.job_id == job.id
    assert do(find_status, job.id) is Status.EXPIRED


def test_a_job_between_two_attempts_stops_at_its_deadline_with_its_partial(make_job, claim, store, lose, do):
    job = claim(make_job(timeouts={"total_seconds": 60})).job
    store(job, 3, "partial")
    lose(job)
    with transaction() as session:
        session.execute(text("UPDATE jobs SET deadline_at = now() - interval '1 s'"))
    (event,) = do(rescue.stop_overdue, 10)
    assert event.data["incomplete_details"] == {"reason": IncompleteReason.TOTAL_TIMEOUT}
    ended = do(find_job, job.id)
    assert (ended.status, ended.output_tokens) == (Status.INCOMPLETE, 7)


def test_what_is_past_its_retention_is_dropped_with_its_log(make_job, do):
    old, running = make_job(), make_job()
    do(lifecycle.request_cancel, old.id)
    with transaction() as session:
        session.execute(
            text("UPDATE jobs SET finished_at = now() - interval '8 d' WHERE finished_at IS NOT NULL")
        )
    assert do(rescue.delete_finished, timedelta(days=7), 10) == 1
    with transaction() as session:
        assert find_job(session, old.id) is None
        assert read_log(session, old.id, 0, 10) == []
        assert find_job(session, running.id)


def test_what_is_not_to_be_stored_is_dropped_soon_after_its_end(make_job, do):
    kept, ended, running = make_job(), make_job(), make_job()
    for job in (kept, ended):
        do(lifecycle.request_cancel, job.id)
    with transaction() as session:
        session.execute(
            text("UPDATE jobs SET is_stored = false WHERE id <> :kept"), {"kept": kept.id.removeprefix("job_")}
        )
        session.execute(
            text("UPDATE jobs SET finished_at = now() - interval '601 s' WHERE finished_at IS NOT NULL")
        )
    assert do(rescue.delete_unstored, timedelta(seconds=602), 10) == 0
    assert do(rescue.delete_unstored, timedelta(seconds=600), 10) == 1
    with transaction() as session:
        assert find_job(session, ended.id) is None
        assert read_log(session, ended.id, 0, 10) == []
        assert find_job(session, kept.id)
        assert find_job(session, running.id)
