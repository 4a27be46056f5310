"""`POST /v1/jobs/{id}/cancel`: idempotent, never an error, with what there is of the output."""

import threading
import time

import pytest

from app.db import transaction
from app.jobs import lifecycle
from app.jobs.lifecycle import Prefill
from app.redis import client
from app.streams import tail
from app.streams.announce import announce
from tests.eventually import eventually


@pytest.fixture
def stops_on_request():
    """`stops_on_request(worker)` lets a played worker settle as soon as it is asked to."""
    threads = []

    def watch(worker):
        subscriber = client().pubsub()
        subscriber.subscribe(tail.CANCEL_CHANNEL)
        assert eventually(lambda: subscriber.get_message(timeout=1))

        def run():
            asked = eventually(lambda: subscriber.get_message(timeout=1))
            assert asked["data"].decode() == worker.job.id
            subscriber.close()
            worker.store()
            with transaction() as session:
                move = lifecycle.cancel(session, worker.job.id, worker.job.lease_id, Prefill(7, 0, 0.0))
            announce([move.event])

        threads.append(threading.Thread(target=run))
        threads[-1].start()

    yield watch
    for thread in threads:
        thread.join(10)


def test_a_queued_job_is_cancelled_at_once(alice):
    job = alice.submit().json
    started = time.monotonic()
    answer = alice.post(job["urls"]["cancel"])
    assert time.monotonic() - started < 1
    assert answer.status_code == 200
    assert answer.json["status"] == "cancelled"
    assert answer.json["cancel_requested_at"] is not None
    assert answer.json["output"]["text"] == ""


def test_a_running_job_comes_back_with_its_partial_output_and_usage(alice, work, stops_on_request):
    job = alice.submit().json
    worker = work(job["id"])
    worker.say("Once upon ")
    worker.store()
    worker.say("a time")
    stops_on_request(worker)
    answer = alice.post(job["urls"]["cancel"]).json
    assert answer["status"] == "cancelled"
    assert answer["output"]["text"] == "Once upon a time"
    assert answer["usage"]["input_tokens"] == 7
    assert answer["usage"]["output_tokens"] == len("Once upon a time")


def test_a_worker_that_does_not_settle_in_time_leaves_the_job_marked(alice, work, monkeypatch):
    from app.api import jobs
    from config.settings import settings

    monkeypatch.setattr(jobs, "settings", lambda: settings().model_copy(update={"cancel_wait_seconds": 0.3}))
    job = alice.submit().json
    worker = work(job["id"])
    worker.say("half")
    worker.store()
    answer = alice.post(job["urls"]["cancel"]).json
    assert answer["status"] == "in_progress"
    assert answer["cancel_requested_at"] is not None
    assert answer["output"]["text"] == "half"


def test_a_finished_job_stays_as_it_is(alice, work):
    job = alice.submit().json
    worker = work(job["id"])
    worker.say("done")
    worker.complete()
    answer = alice.post(job["urls"]["cancel"])
    assert answer.status_code == 200
    assert (answer.json["status"], answer.json["cancel_requested_at"]) == ("completed", None)
    assert answer.json["output"]["text"] == "done"


def test_cancelling_twice_is_cancelling_once(alice):
    job = alice.submit().json
    first = alice.post(job["urls"]["cancel"]).json
    assert alice.post(job["urls"]["cancel"]).json == first
