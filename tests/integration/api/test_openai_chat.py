"""`POST /v1/chat/completions`: waiting for its jobs, streaming them, and what becomes of them without it."""

import threading
from contextlib import contextmanager

import pytest
from sqlalchemy import event

from app.api import following
from app.api.calls import calling, telling
from app.db import engine, transaction
from app.jobs import lifecycle, log
from app.jobs.lifecycle import Prefill
from app.jobs.states import IncompleteReason
from app.streams.announce import announce
from config.settings import settings
from tests.eventually import eventually
from tests.integration.api.openai import Call

PATH = "/v1/chat/completions"
SAY = {"model": "faulty", "messages": [{"role": "user", "content": "Say something."}]}

pytestmark = pytest.mark.usefixtures("served")


@pytest.fixture
def call(threaded_server, alice):
    """`call(**body)` asks for a chat completion."""

    def make(server=threaded_server, headers=None, **body):
        return Call(server, PATH, alice.secret, {**SAY, **body}, headers=headers or {})

    return make


def status_of(alice, job_id):
    return alice.get(f"/v1/jobs/{job_id}").json["status"]


def test_a_call_waits_for_its_job_and_names_it(call, pick_up, alice):
    made = call()
    worker = pick_up()
    worker.say("Hello ")
    worker.say("world")
    worker.complete()
    answer = made.ended().json
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["content"] == "Hello world"
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert made.headers["x-longhaul-job-id"] == worker.job.id
    assert answer["id"] == worker.job.id.replace("job_", "chatcmpl-")
    assert status_of(alice, worker.job.id) == "completed"


def test_a_stream_gives_chunks_and_ends(call, pick_up):
    made = call(stream=True, stream_options={"include_usage": True})
    worker = pick_up()
    worker.say("Hello ")
    eventually(lambda: any(c["choices"][0]["delta"].get("content") == "Hello " for c in made.data))
    worker.say("world")
    worker.complete()
    chunks = made.ended().data
    assert chunks.pop() == "[DONE]"
    usage = chunks.pop()
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 11)
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks) == "Hello world"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert made.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert made.headers["x-accel-buffering"] == "no"
    assert made.headers["x-longhaul-job-id"] == worker.job.id


def test_each_choice_is_a_job(call, pick_up):
    made = call(n=2)
    workers = [pick_up(), pick_up()]
    for number, worker in enumerate(workers):
        worker.say(f"answer {number}")
        worker.complete()
    answer = made.ended().json
    assert [choice["message"]["content"] for choice in answer["choices"]] == ["answer 0", "answer 1"]
    assert made.headers["x-longhaul-job-id"] == ",".join(worker.job.id for worker in workers)


def test_choices_are_streamed_side_by_side(call, pick_up):
    made = call(n=2, stream=True)
    first, second = pick_up(), pick_up()
    for word in ("one ", "two"):
        first.say(word)
        second.say(word.upper())
    second.complete()
    first.complete()
    chunks = made.ended().data
    assert chunks.pop() == "[DONE]"
    said = {0: "", 1: ""}
    for chunk in chunks:
        for choice in chunk["choices"]:
            said[choice["index"]] += choice["delta"].get("content") or ""
    assert said == {0: "one two", 1: "ONE TWO"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_cancels_its_job_within_a_second(call, pick_up, alice, stream):
    made = call(stream=stream)
    worker = pick_up()
    worker.say("Hello")
    if stream:
        eventually(lambda: made.events)
    made.hang_up()
    eventually(lambda: alice.get(f"/v1/jobs/{worker.job.id}").json["cancel_requested_at"], 1.5)
    worker.complete()


@pytest.mark.parametrize("where", ["body", "metadata", "key"])
def test_a_job_goes_on_without_its_client_where_that_was_asked_for(call, pick_up, alice, where):
    wanted = {
        "body": {"on_disconnect": "continue"},
        "metadata": {"metadata": {"on_disconnect": "continue"}},
        "key": {"headers": {"Idempotency-Key": "again"}},
    }[where]
    made = call(**wanted)
    worker = pick_up()
    made.hang_up()
    eventually(lambda: made._error or made.answer)
    eventually(lambda: following.places.taken == 0, 5)
    assert alice.get(f"/v1/jobs/{worker.job.id}").json["cancel_requested_at"] is None
    worker.complete()


def test_a_retried_call_attaches_to_the_running_job(call, pick_up, alice):
    again = {"headers": {"Idempotency-Key": "again"}}
    made = call(**again)
    worker = pick_up()
    worker.say("Hello ")
    made.hang_up()
    retried = call(**again)
    streamed = call(**again)
    worker.say("world")
    worker.store()
    worker.complete()
    assert retried.ended().json["choices"][0]["message"]["content"] == "Hello world"
    assert streamed.ended().json == retried.json
    assert retried.headers["x-longhaul-job-id"] == worker.job.id
    assert retried.headers["idempotency-replayed"] == "true"
    assert len(alice.get("/v1/jobs").json["data"]) == 1


def test_a_retried_stream_begins_at_the_beginning(call, pick_up):
    again = {"headers": {"Idempotency-Key": "again"}, "stream": True}
    made = call(**again)
    worker = pick_up()
    worker.say("Hello ")
    worker.store()
    worker.say("live ")
    retried = call(**again)
    worker.say("world")
    worker.complete()
    assert made.ended().data == retried.ended().data
    late = call(**again).ended()
    assert late.data == made.data


def test_one_that_attached_and_goes_away_cancels_nothing(call, pick_up, alice):
    again = {"headers": {"Idempotency-Key": "again"}, "on_disconnect": "cancel"}
    made = call(**again)
    worker = pick_up()
    attached = call(**again)
    eventually(lambda: following.places.taken == 2)
    attached.hang_up()
    eventually(lambda: following.places.taken == 1)
    worker.say("unharmed")
    worker.complete()
    assert made.ended().json["choices"][0]["message"]["content"] == "unharmed"


def test_a_call_that_waits_too_long_ends_with_an_error_that_names_background_mode(
    call, pick_up, alice, monkeypatch
):
    with settings_with(monkeypatch, max_sync_seconds=0.5):
        made = call()
        worker = pick_up()
        worker.say("too late")
        made.ended()
    error = made.json["error"]
    assert (made.status, error["code"]) == (504, "sync_timeout")
    assert "background" in error["message"]
    assert worker.job.id in error["message"]
    assert made.headers["x-should-retry"] == "false"
    assert made.headers["x-longhaul-job-id"] == worker.job.id
    assert alice.get(f"/v1/jobs/{worker.job.id}").json["cancel_requested_at"]


def test_a_stream_may_take_longer_than_a_call_may_wait(call, pick_up, monkeypatch):
    with settings_with(monkeypatch, max_sync_seconds=0.2):
        made = call(stream=True)
        worker = pick_up()
        worker.say("slowly ")
        eventually(lambda: following.places.taken == 1)
        worker_is_slow = threading.Event()
        worker_is_slow.wait(0.6)
        worker.say("but surely")
        worker.complete()
        assert made.ended().data[-1] == "[DONE]"


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_of_a_model_that_nobody_serves_waits_a_while_and_is_refused(call, alice, monkeypatch, stream):
    with settings_with(monkeypatch, worker_absence_seconds=0.5):
        made = call(model="simulated", stream=stream).ended(5)
    error = made.data[-2]["error"] if stream else made.json["error"]
    assert error["code"] == "sync_timeout"
    assert "No worker serves 'simulated'" in error["message"]
    if not stream:
        assert (made.status, made.headers["retry-after"]) == (504, "5")
    eventually(lambda: [job["status"] for job in alice.get("/v1/jobs").json["data"]] == ["cancelled"])


def test_a_call_waits_for_a_worker_that_restarts(call, pick_up, monkeypatch):
    with settings_with(monkeypatch, worker_absence_seconds=2):
        made = call(model="simulated")
        worker = pick_up()
        worker_is_slow = threading.Event()
        worker_is_slow.wait(3)
        worker.say("back")
        worker.complete()
        assert made.ended().status == 200


def fail(worker, code="engine_error"):
    worker.store()
    with transaction() as session:
        move = lifecycle.fail(session, worker.job.id, worker.job.lease_id, Prefill(), code, "It broke.")
    announce([move.event])


def stop_early(worker):
    worker.store()
    with transaction() as session:
        move = lifecycle.stop_early(
            session, worker.job.id, worker.job.lease_id, Prefill(), IncompleteReason.MAX_OUTPUT_TOKENS
        )
    announce([move.event])


def cancel(worker):
    worker.store()
    with transaction() as session:
        move = lifecycle.cancel(session, worker.job.id, worker.job.lease_id, Prefill())
    announce([move.event])


@pytest.mark.parametrize("end", [stop_early, cancel])
def test_a_cut_answer_has_the_partial_and_the_reason_length(call, pick_up, end):
    made, streamed = call(), call(stream=True)
    for worker in (pick_up(), pick_up()):
        worker.say("half an ans")
        end(worker)
    choice = made.ended().json["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("half an ans", "length")
    assert streamed.ended().data[-2]["choices"][0]["finish_reason"] == "length"
    assert streamed.data[-1] == "[DONE]"


@pytest.mark.parametrize(("code", "status"), [("engine_error", 500), ("invalid_prompt", 400)])
def test_a_failed_job_is_an_error_that_is_not_to_be_retried(call, pick_up, code, status):
    made, streamed = call(), call(stream=True)
    for worker in (pick_up(), pick_up()):
        fail(worker, code)
    made.ended()
    assert (made.status, made.json["error"]["code"]) == (status, code)
    assert made.headers.get("x-should-retry") == ("false" if status == 500 else None)
    streamed.ended()
    assert streamed.status == 200
    assert next(data["error"]["code"] for data in streamed.data if "error" in data) == code


def test_a_stream_ends_with_an_error_when_its_job_is_deleted(call, pick_up, alice):
    made = call(stream=True)
    worker = pick_up()
    worker.say("Hello")
    eventually(lambda: made.events)
    with transaction() as session:
        log.erase(session, [worker.job.id])
    made.ended()
    assert next(data["error"]["code"] for data in made.data if "error" in data) == "job_not_found"


def test_a_quiet_stream_is_kept_alive_by_comments_alone(call, pick_up, monkeypatch):
    with settings_with(monkeypatch, ping_seconds=0.2):
        made = call(stream=True)
        worker = pick_up()
        eventually(lambda: len(made.comments) >= 2)
        worker.complete()
        made.ended()
    assert set(made.comments) == {": ping"}


def test_a_stream_begins_before_its_first_word(call, pick_up):
    made = call(stream=True)
    eventually(lambda: made.comments == [": ping"], 2)
    worker = pick_up()
    assert made.headers["x-longhaul-job-id"] == worker.job.id
    worker.complete()
    made.ended()


def test_a_streamed_call_asks_the_database_for_nothing_but_its_submission(call, pick_up):
    made = call(stream=True)
    pick_up().complete()
    made.ended()  # the key and the workers are known now
    with statements_of_requests() as statements:
        made = call(stream=True)
        worker = pick_up()
        for word in ("one ", "two ", "three"):
            worker.say(word)
            eventually(lambda word=word: any(word in str(data) for data in made.data))
        worker.complete()
        made.ended()
    assert len([s for s in statements if "INSERT INTO jobs" in s]) == 1
    assert len(statements) == 1, statements


@contextmanager
def settings_with(monkeypatch, **changes):
    changed = settings().model_copy(update=changes)
    for module in (calling, telling):
        monkeypatch.setattr(module, "settings", lambda: changed)
    yield
    monkeypatch.undo()


@contextmanager
def statements_of_requests():
    """What the threads of the server ask the database, but for looks at who serves what."""
    seen = []

    def note(_connection, _cursor, statement, *_):
        if "process_request" in threading.current_thread().name and "FROM workers" not in statement:
            seen.append(statement)

    event.listen(engine(), "before_cursor_execute", note)
    yield seen
    event.remove(engine(), "before_cursor_execute", note)
