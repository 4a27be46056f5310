"""What only real servers show of OpenAI's calls: clients that vanish, streams that go on at another process,
servers that stop.
"""

import os
import signal

import httpx
import pytest

from tests.eventually import eventually
from tests.integration.api.conftest import running_gunicorn
from tests.integration.api.openai import Call

RESPONSES, CHAT = "/v1/responses", "/v1/chat/completions"
SAY = {
    RESPONSES: {"model": "faulty", "input": "Say something."},
    CHAT: {"model": "faulty", "messages": [{"role": "user", "content": "Say something."}]},
}

pytestmark = pytest.mark.usefixtures("served")


@pytest.fixture
def ask(alice):
    """`ask(server, path, **body)` makes a call on a thread; without a body it gets."""

    def make(server, path, headers=None, **body):
        said = {**SAY[path], **body} if path in SAY else None
        return Call(server, path, alice.secret, said, headers=headers or {})

    return make


def is_being_cancelled(alice, job_id):
    return alice.get(f"/v1/jobs/{job_id}").json["cancel_requested_at"] is not None


@pytest.mark.parametrize("path", [RESPONSES, CHAT])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_vanishes_cancels_within_a_second(gunicorn, ask, pick_up, alice, path, stream):
    made = ask(gunicorn[0], path, stream=stream)
    worker = pick_up()
    worker.say("Hello")
    eventually(lambda: not stream or made.events)
    made.hang_up()
    eventually(lambda: is_being_cancelled(alice, worker.job.id), 1.5)
    worker.complete()


def test_a_stream_goes_on_at_another_process_from_any_event(gunicorn, services, ask, pick_up):
    made = ask(gunicorn[0], RESPONSES, stream=True, on_disconnect="continue")
    worker = pick_up()
    worker.say("Hello ")
    worker.store()
    worker.say("wor")
    eventually(lambda: len(made.events) >= 6)
    seen = list(made.data)
    made.hang_up()
    path = f"{RESPONSES}/{seen[0]['response']['id']}?stream=true"
    with running_gunicorn(services) as (other, _):
        resumed = [ask(other, f"{path}&starting_after={event['sequence_number']}") for event in seen]
        whole = ask(other, path)
        worker.say("ld")
        worker.complete()
        events = whole.ended().data
        assert events[: len(seen)] == seen
        assert events[-1]["response"]["output"][0]["content"][0]["text"] == "Hello world"
        for number, one in enumerate(resumed, 1):
            assert one.ended().data == events[number:]


def test_a_retried_call_attaches_at_another_process(gunicorn, services, ask, pick_up):
    again = {"headers": {"Idempotency-Key": "again"}}
    made = ask(gunicorn[0], CHAT, **again)
    worker = pick_up()
    made.hang_up()
    with running_gunicorn(services) as (other, _):
        retried = ask(other, CHAT, **again)
        worker.say("Hello")
        worker.complete()
        assert retried.ended().json["choices"][0]["message"]["content"] == "Hello"
        assert retried.headers["x-longhaul-job-id"] == worker.job.id


@pytest.mark.parametrize("key", [None, "again"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_stops_says_so_and_leaves_what_can_be_attached_to(
    services, ask, pick_up, alice, stream, key
):
    with running_gunicorn(services) as (server, pid):
        made = ask(server, CHAT, stream=stream, headers={"Idempotency-Key": key} if key else {})
        worker = pick_up()
        worker.say("Hello")
        eventually(lambda: not stream or made.events)
        os.kill(pid, signal.SIGTERM)
        made.ended()
    error = made.data[-2]["error"] if stream else made.json["error"]
    assert error["code"] == "server_stopping"
    assert stream or (made.status, made.headers["retry-after"]) == (503, "2")
    assert is_being_cancelled(alice, worker.job.id) == (key is None)
    worker.complete()


def test_a_stored_response_outlives_the_server_that_streamed_it(services, gunicorn, ask, pick_up, alice):
    with running_gunicorn(services) as (server, pid):
        made = ask(server, RESPONSES, stream=True)
        worker = pick_up()
        worker.say("Hello ")
        eventually(lambda: len(made.events) >= 5)
        os.kill(pid, signal.SIGTERM)
        events = made.ended().data
    assert (events[-1]["type"], events[-1]["code"]) == ("error", "server_stopping")
    assert not is_being_cancelled(alice, worker.job.id)
    last = events[-2]["sequence_number"]
    resumed = ask(gunicorn[0], f"{RESPONSES}/{events[0]['response']['id']}?stream=true&starting_after={last}")
    worker.say("world")
    worker.complete()
    assert resumed.ended().data[0]["delta"] == "world"


def test_a_process_takes_no_more_calls_than_it_may(services, ask, pick_up, alice):
    with running_gunicorn(services, max_followers=1) as (server, _):
        made = ask(server, CHAT)
        worker = pick_up()
        refused = ask(server, CHAT).ended()
        assert (refused.status, refused.json["error"]["code"]) == (503, "server_busy")
        background = {**SAY[RESPONSES], "background": True}
        url = f"http://{server}{RESPONSES}"
        assert httpx.post(url, json=background, headers=alice.headers, trust_env=False).status_code == 200
        worker.complete()
        made.ended()
