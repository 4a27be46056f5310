"""`GET /v1/jobs/{id}`, at once and as a long-poll."""

import threading
import time

import pytest
from sqlalchemy import text

from app.db import transaction
from app.jobs import lifecycle, rescue
from app.jobs.lifecycle import Prefill
from app.jobs.states import IncompleteReason
from app.streams.announce import announce
from tests.following import StrictFollower


def add_worker(model="faulty", seen="now()"):
    with transaction() as session:
        session.execute(
            text(f"INSERT INTO workers (id, model, slots, seen_at) VALUES ('w', :model, 4, {seen})"),
            {"model": model},
        )


def test_a_queued_job_says_that_no_worker_serves_its_model(alice):
    job = alice.get(alice.submit(metadata={"a": "b"}).json["urls"]["self"]).json
    assert job["status"] == "queued"
    assert job["waiting"]["reason"] == "no_worker"
    assert "faulty" in job["waiting"]["message"]
    assert job["metadata"] == {"a": "b"}
    assert job["output"] == {"text": "", "message": None, "logprobs": None}
    assert job["last_seq"] == 1
    assert (job["started_at"], job["finished_at"], job["attempt"]) == (None, None, 0)


def test_a_queued_job_whose_model_is_served_is_in_line(alice):
    add_worker()
    assert alice.get(alice.submit().json["urls"]["self"]).json["waiting"]["reason"] == "in_line"


def test_a_worker_that_was_not_heard_of_lately_does_not_count(alice):
    add_worker(seen="now() - interval '1 minute'")
    assert alice.get(alice.submit().json["urls"]["self"]).json["waiting"]["reason"] == "no_worker"


def test_a_running_job_shows_its_output_so_far_and_the_cursor_that_goes_with_it(alice, work):
    path = alice.submit().json["urls"]["self"]
    worker = work(path.rpartition("/")[2])
    worker.say("Hello ")
    worker.say("wor")
    worker.store()
    worker.say("ld")
    job = alice.get(path).json
    assert job["status"] == "in_progress"
    assert job["output"]["text"] == "Hello wor"
    assert job["usage"]["output_tokens"] == len("Hello wor")
    assert job["waiting"] is None
    assert job["started_at"] is not None
    rest = StrictFollower(cursor=job["last_seq"], text=job["output"]["text"])
    for frame in alice.get(f"{path}/events?after={job['last_seq']}").json["data"]:
        rest.take(frame)
    assert rest.text == "Hello world"


def test_a_completed_job_has_output_usage_and_times(alice, work):
    path = alice.submit().json["urls"]["self"]
    worker = work(path.rpartition("/")[2])
    worker.say("Paris")
    worker.complete()
    job = alice.get(path).json
    assert job["status"] == "completed"
    assert job["output"]["text"] == "Paris"
    assert job["usage"] == {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 5,
        "total_tokens": 6,
    }
    assert job["created_at"] <= job["started_at"] <= job["finished_at"]
    assert job["first_token_at"] is not None
    assert (job["error"], job["incomplete_details"]) == (None, None)


def test_a_failed_job_says_why(alice, work):
    path = alice.submit().json["urls"]["self"]
    job = work(path.rpartition("/")[2]).job
    with transaction() as session:
        lifecycle.fail(session, job.id, job.lease_id, Prefill(), "engine_error", "It broke.")
    shown = alice.get(path).json
    assert (shown["status"], shown["error"]) == ("failed", {"code": "engine_error", "message": "It broke."})


def test_an_incomplete_job_says_why(alice, work):
    path = alice.submit().json["urls"]["self"]
    job = work(path.rpartition("/")[2]).job
    with transaction() as session:
        lifecycle.stop_early(session, job.id, job.lease_id, Prefill(), IncompleteReason.TOTAL_TIMEOUT)
    assert alice.get(path).json["incomplete_details"] == {"reason": "total_timeout"}


@pytest.mark.parametrize("path", ["", "/events", "/cancel", "/stream"])
def test_a_job_of_another_account_does_not_exist(alice, mallory, path):
    job_id = alice.submit().json["id"]
    method = "POST" if path == "/cancel" else "GET"
    answer = mallory(method, f"/v1/jobs/{job_id}{path}")
    if path != "/stream":
        assert answer.status_code == 404
        assert answer.json["error"]["code"] == "job_not_found"
    assert mallory("DELETE", f"/v1/jobs/{job_id}").status_code == 404
    assert alice.get(f"/v1/jobs/{job_id}").json["status"] == "queued"


def test_two_keys_of_one_account_see_the_same_jobs(alice, caller):
    bob = caller("alice")
    assert bob.secret != alice.secret
    assert bob.get(alice.submit().json["urls"]["self"]).status_code == 200


@pytest.mark.parametrize("job_id", ["job_1", "x", "job_" + "0" * 32, "JOB_" + "0" * 32, "job_%00"])
def test_an_unknown_id_is_not_found(alice, job_id):
    assert alice.get(f"/v1/jobs/{job_id}").status_code == 404


def ends_after(job, seconds, verb=lifecycle.complete):
    def end():
        time.sleep(seconds)
        with transaction() as session:
            move = verb(session, job.id, job.lease_id, Prefill())
        announce([move.event])

    thread = threading.Thread(target=end)
    thread.start()
    return thread


def test_a_long_poll_returns_as_soon_as_the_job_ends(alice, work):
    path = alice.submit().json["urls"]["self"]
    ending = ends_after(work(path.rpartition("/")[2]).job, 0.6)
    started = time.monotonic()
    answer = alice.get(f"{path}?wait=20")
    took = time.monotonic() - started
    ending.join()
    assert answer.json["status"] == "completed"
    assert 0.5 < took < 1.5


def test_a_long_poll_by_preference_says_what_it_honoured(alice):
    path = alice.submit().json["urls"]["self"]
    started = time.monotonic()
    answer = alice.get(path, headers={"Prefer": "respond-async, wait=1"})
    assert 0.9 < time.monotonic() - started < 2.5
    assert answer.json["status"] == "queued"
    assert answer.headers["Preference-Applied"] == "wait=1"


def test_a_long_poll_of_a_finished_job_does_not_wait(alice, work):
    path = alice.submit().json["urls"]["self"]
    work(path.rpartition("/")[2]).complete()
    started = time.monotonic()
    assert alice.get(f"{path}?wait=30").json["status"] == "completed"
    assert time.monotonic() - started < 1


@pytest.mark.parametrize("wait", ["61", "-1", "soon", "nan"])
def test_a_wait_beyond_the_limit_is_refused(alice, wait):
    answer = alice.get(f"{alice.submit().json['urls']['self']}?wait={wait}")
    assert (answer.status_code, answer.json["error"]["param"]) == (400, "wait")


def test_a_long_poll_of_a_job_that_expires_ends(alice):
    path = alice.submit(expires_after_seconds=1).json["urls"]["self"]

    def expire():
        time.sleep(1.2)
        with transaction() as session:
            events = rescue.expire(session, 10)
        announce(events)

    thread = threading.Thread(target=expire)
    thread.start()
    assert alice.get(f"{path}?wait=20").json["status"] == "expired"
    thread.join()
