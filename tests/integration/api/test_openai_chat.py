"""`POST /v1/chat/completions`: waiting for its jobs, streaming them, and what becomes of them without it."""

import pytest

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
    from app.api import following

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
    from app.api import following

    eventually(lambda: following.places.taken == 2)
    attached.hang_up()
    eventually(lambda: following.places.taken == 1)
    worker.say("unharmed")
    worker.complete()
    assert made.ended().json["choices"][0]["message"]["content"] == "unharmed"
