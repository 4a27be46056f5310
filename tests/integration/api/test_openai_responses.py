"""`/v1/responses`: created plainly, streamed and in the background, found again, cancelled, deleted."""

import threading

import pytest

from app.api import following
from app.db import transaction
from app.jobs import lifecycle, rescue
from app.jobs.lifecycle import Prefill
from app.jobs.states import IncompleteReason
from app.streams.announce import announce
from config.catalogue import catalogue
from tests.eventually import eventually
from tests.integration.api.openai import Call

PATH = "/v1/responses"
SAY = {"model": "faulty", "input": "Say something."}

pytestmark = pytest.mark.usefixtures("served")


@pytest.fixture
def ask(threaded_server, alice):
    """`ask(path=PATH, **body)` creates a response on a thread; with another path, gets that."""

    def make(path=PATH, server=threaded_server, headers=None, **body):
        said = {**SAY, **body} if path == PATH else None
        return Call(server, path, alice.secret, said, headers=headers or {})

    return make


@pytest.fixture
def background(alice, work):
    """A response in the background, and the worker that has its job."""
    made = alice.post(PATH, {**SAY, "background": True}).json
    return made, work(made["id"].replace("resp_", "job_"))


def types(call):
    return [data["type"] for data in call.data]


def settle(verb):
    """Ends a played worker's job with a verb of the lifecycle."""

    def end(worker):
        worker.store()
        with transaction() as session:
            move = verb(session, worker.job)
        announce([move.event])

    return end


ENDINGS = {
    "completed": lambda worker: worker.complete(),
    "incomplete": settle(
        lambda session, job: lifecycle.stop_early(
            session, job.id, job.lease_id, Prefill(), IncompleteReason.MAX_OUTPUT_TOKENS
        )
    ),
    "failed": settle(
        lambda session, job: lifecycle.fail(session, job.id, job.lease_id, Prefill(), "engine", "It broke.")
    ),
    "cancelled": settle(lambda session, job: lifecycle.cancel(session, job.id, job.lease_id, Prefill())),
}
LAST = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
    "failed": "response.failed",
    "cancelled": "response.incomplete",
}


def test_a_plain_call_waits_and_its_response_can_be_retrieved(ask, pick_up, alice):
    made = ask(metadata={"k": "v"}, instructions="Be brief.")
    worker = pick_up()
    worker.say("Hello ")
    worker.say("world")
    worker.complete()
    answer = made.ended().json
    assert (answer["object"], answer["status"]) == ("response", "completed")
    assert answer["output"][0]["content"][0]["text"] == "Hello world"
    assert (answer["metadata"], answer["instructions"]) == ({"k": "v"}, "Be brief.")
    assert answer["usage"]["output_tokens"] == 11
    assert made.headers["x-longhaul-job-id"] == worker.job.id
    assert alice.get(f"{PATH}/{answer['id']}").json == answer


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_stream_and_every_later_reading_of_it_are_the_same_and_end(ask, pick_up, ending):
    made = ask(stream=True)
    worker = pick_up()
    eventually(lambda: made.events)
    worker.say("Hello ")
    worker.store()
    worker.say("world")
    response_id = made.data[0]["response"]["id"]
    during = ask(f"{PATH}/{response_id}?stream=true")
    eventually(lambda: len(during.events) >= 5)
    ENDINGS[ending](worker)
    after = ask(f"{PATH}/{response_id}?stream=true")
    events = made.ended().data
    assert events == during.ended().data == after.ended().data
    assert made.events[0][0] == "response.created"
    assert [kind for kind, _ in made.events] == types(made)
    assert types(made)[-1] == LAST[ending]
    assert events[-1]["response"]["status"] == ending
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "Hello world"
    numbers = [event["sequence_number"] for event in events]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 0
    for number in numbers:
        resumed = ask(f"{PATH}/{response_id}?stream=true&starting_after={number}").ended()
        assert resumed.data == [event for event in events if event["sequence_number"] > number]


def test_an_expired_response_has_failed(ask, alice):
    made = alice.post(PATH, {**SAY, "background": True}).json
    follower = ask(f"{PATH}/{made['id']}?stream=true")
    eventually(lambda: follower.events)
    from sqlalchemy import text

    with transaction() as session:
        session.execute(text("UPDATE jobs SET expires_at = now()"))
        events = rescue.expire(session, 10)
    announce(events)
    assert types(follower.ended())[-1] == "response.failed"
    assert alice.get(f"{PATH}/{made['id']}").json["status"] == "failed"


def test_a_background_response_is_answered_at_once_and_polled(alice, background):
    made, worker = background
    assert (made["status"], made["background"], made["output"]) == ("queued", True, [])
    path = f"{PATH}/{made['id']}"
    worker.say("Hello")
    worker.store()
    found = alice.get(path).json
    assert (found["status"], found["output"][0]["content"][0]["text"]) == ("in_progress", "Hello")
    worker.complete()
    assert alice.get(path).json["status"] == "completed"


def test_a_background_stream_goes_on_without_its_reader(ask, pick_up, alice):
    made = ask(stream=True, background=True)
    eventually(lambda: len(made.events) == 2)
    assert types(made) == ["response.created", "response.queued"]
    worker = pick_up()
    made.hang_up()
    eventually(lambda: following.places.taken == 0, 5)
    assert alice.get(f"/v1/jobs/{worker.job.id}").json["cancel_requested_at"] is None
    worker.complete()


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_cancels_its_response(ask, pick_up, alice, stream):
    made = ask(stream=stream)
    worker = pick_up()
    made.hang_up()
    eventually(lambda: alice.get(f"/v1/jobs/{worker.job.id}").json["cancel_requested_at"], 1.5)
    worker.complete()


def test_cancelling_keeps_the_partial_and_may_be_repeated(alice, background):
    made, worker = background
    worker.say("half an ans")
    path = f"{PATH}/{made['id']}/cancel"
    threading.Timer(0.3, ENDINGS["cancelled"], (worker,)).start()
    answer = alice.post(path).json
    assert (answer["status"], answer["output"][0]["content"][0]["text"]) == ("cancelled", "half an ans")
    assert answer["output"][0]["status"] == "incomplete"
    assert alice.post(path).json == answer


def test_a_deleted_response_is_gone(alice, background, mallory):
    made, worker = background
    worker.complete()
    path = f"{PATH}/{made['id']}"
    assert mallory("DELETE", path).status_code == 404
    assert alice("DELETE", path).json == {"id": made["id"], "object": "response", "deleted": True}
    for answer in (alice.get(path), alice("DELETE", path), alice.post(f"{path}/cancel")):
        assert (answer.status_code, answer.json["error"]["code"]) == (404, "response_not_found")
        assert made["id"] in answer.json["error"]["message"]


def test_deleting_a_response_that_waits_cancels_it(alice):
    made = alice.post(PATH, {**SAY, "background": True}).json
    assert alice("DELETE", f"{PATH}/{made['id']}").json["deleted"]
    assert alice.get(f"{PATH}/{made['id']}").status_code == 404


def test_what_is_not_stored_cannot_be_retrieved(ask, pick_up, alice):
    made = ask(store=False)
    worker = pick_up()
    path = f"{PATH}/{worker.job.id.replace('job_', 'resp_')}"
    assert alice.get(path).status_code == 404
    worker.complete()
    assert made.ended().json["store"] is False
    assert alice.get(path).status_code == 404
    assert alice.post(PATH, {**SAY, "previous_response_id": made.json["id"]}).status_code == 400


def test_in_the_background_what_is_not_stored_can_be_polled(alice, work):
    made = alice.post(PATH, {**SAY, "background": True, "store": False}).json
    worker = work(made["id"].replace("resp_", "job_"))
    worker.complete()
    assert alice.get(f"{PATH}/{made['id']}").json["status"] == "completed"


@pytest.mark.parametrize("surface", ["job", "mallory's", "no id"])
def test_only_ones_own_responses_are_found(alice, mallory, surface):
    response_id = {
        "job": lambda: alice.submit().json["id"].replace("job_", "resp_"),
        "mallory's": lambda: mallory.post(PATH, {**SAY, "background": True}).json["id"],
        "no id": lambda: "resp_123",
    }[surface]()
    for path in (
        f"{PATH}/{response_id}",
        f"{PATH}/{response_id}?stream=true",
        f"{PATH}/{response_id}/input_items",
    ):
        answer = alice.get(path)
        assert (answer.status_code, answer.json["error"]["code"]) == (404, "response_not_found")


def test_a_response_that_follows_another_takes_its_conversation_over(ask, pick_up, alice):
    first = ask(instructions="Be brief.")
    worker = pick_up()
    worker.say("First answer.")
    worker.complete()
    first_id = first.ended().json["id"]
    second = ask(previous_response_id=first_id, input="And then?")
    worker = pick_up()
    said = [(message["role"], message["content"]) for message in worker.job.request["input"]]
    assert said == [
        ("user", "Say something."),
        ("assistant", "First answer."),
        ("user", "And then?"),
    ]
    assert worker.job.request["instructions"] is None
    worker.say("Second answer.")
    worker.complete()
    answer = second.ended().json
    assert answer["previous_response_id"] == first_id
    alice("DELETE", f"{PATH}/{first_id}")
    listed = alice.get(f"{PATH}/{answer['id']}/input_items?order=asc").json
    assert [item["content"][0]["text"] for item in listed["data"]] == [text for _, text in said]
    assert alice.get(f"{PATH}/{answer['id']}").json == answer


@pytest.mark.parametrize("status", ["queued", "failed"])
def test_nothing_follows_a_response_that_has_not_ended_or_failed(alice, work, status):
    made = alice.post(PATH, {**SAY, "background": True}).json
    if status == "failed":
        ENDINGS["failed"](work(made["id"].replace("resp_", "job_")))
    answer = alice.post(PATH, {**SAY, "previous_response_id": made["id"]})
    assert (answer.status_code, answer.json["error"]["param"]) == (400, "previous_response_id")
    assert status in answer.json["error"]["message"]
    unknown = alice.post(PATH, {**SAY, "previous_response_id": "resp_1"}).json["error"]
    assert unknown["code"] == "previous_response_not_found"


def test_input_items_are_paged(alice):
    items = [{"role": "user", "content": f"{number}"} for number in range(45)]
    made = alice.post(PATH, {**SAY, "background": True, "input": items}).json
    path = f"{PATH}/{made['id']}/input_items"
    seen, after = [], ""
    while True:
        page = alice.get(f"{path}?limit=20{after}").json
        seen += [item["content"][0]["text"] for item in page["data"]]
        assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
        if not page["has_more"]:
            break
        after = f"&after={page['last_id']}"
    assert seen == [str(number) for number in reversed(range(45))]
    assert len(alice.get(path).json["data"]) == 20
    for query, param in (
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("order=up", "order"),
        ("after=x", "after"),
    ):
        answer = alice.get(f"{path}?{query}")
        assert (answer.status_code, answer.json["error"]["param"]) == (400, param)


def test_input_tokens_are_those_that_a_job_counts(ask, pick_up, alice):
    counted = alice.post(f"{PATH}/input_tokens", SAY).json
    assert counted["object"] == "response.input_tokens"
    made = ask()
    worker = pick_up()
    assert worker.job.prompt_tokens == counted["input_tokens"] > 0
    worker.complete()
    made.ended()
    more = alice.post(f"{PATH}/input_tokens", {**SAY, "previous_response_id": made.json["id"]}).json
    assert more["input_tokens"] > counted["input_tokens"]


def test_what_is_too_long_is_refused_or_loses_its_oldest_messages(alice, work):
    items = [{"role": "user", "content": f"{number} " + "word " * 400} for number in range(20)]
    body = {**SAY, "background": True, "input": items}
    answer = alice.post(PATH, body)
    assert (answer.status_code, answer.json["error"]["code"]) == (400, "context_length_exceeded")
    made = alice.post(PATH, {**body, "truncation": "auto"}).json
    worker = work(made["id"].replace("resp_", "job_"))
    kept = [message["content"].split()[0] for message in worker.job.request["input"]]
    assert 1 < len(kept) < 20
    assert kept == [str(number) for number in range(20 - len(kept), 20)]
    assert worker.job.prompt_tokens < 4096


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"nonsense": 1}, "nonsense"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"temperature": 3}, "temperature"),
        ({"metadata": {"tier": "express"}}, "metadata.tier"),
        ({"metadata": {"webhook_url": "https://10.0.0.1/"}}, "metadata.webhook_url"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0.content.0.type"),
        ({"input": []}, "input"),
        ({"model": 5}, "model"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(alice, body, param):
    answer = alice.post(PATH, {**SAY, "background": True, **body})
    assert answer.status_code == 400, answer.json
    assert answer.json["error"]["param"] == param


@pytest.mark.parametrize(
    ("query", "param"),
    [("starting_after=-1", "starting_after"), ("stream=perhaps", "stream"), ("nonsense=1", "nonsense")],
)
def test_a_bad_query_is_refused_by_name(alice, query, param):
    made = alice.post(PATH, {**SAY, "background": True}).json
    answer = alice.get(f"{PATH}/{made['id']}?{query}")
    assert (answer.status_code, answer.json["error"]["param"]) == (400, param)


def test_a_retrieve_may_name_what_it_includes(alice):
    made = alice.post(PATH, {**SAY, "background": True}).json
    query = "include[]=message.output_text.logprobs&include_obfuscation=true"
    assert alice.get(f"{PATH}/{made['id']}?{query}").json["id"] == made["id"]


def test_flex_is_the_batch_tier_and_the_answer_says_so(alice):
    made = alice.post(PATH, {**SAY, "background": True, "service_tier": "flex"}).json
    assert made["service_tier"] == "flex"
    assert alice.get("/v1/jobs").json["data"][0]["tier"] == "batch"


def test_a_retried_stream_attaches(ask, pick_up):
    again = {"stream": True, "headers": {"Idempotency-Key": "again"}}
    made = ask(**again)
    worker = pick_up()
    worker.say("Hello")
    retried = ask(**again)
    worker.complete()
    assert made.ended().data == retried.ended().data
    other = ask(**{**again, "input": "Something else."}).ended()
    assert (other.status, other.json["error"]["code"]) == (409, "idempotency_conflict")


def test_a_model_without_a_parser_for_them_takes_no_tools(alice, monkeypatch):
    mute = catalogue()["faulty"].model_copy(update={"name": "toolless", "tool_parser": ""})
    monkeypatch.setitem(catalogue(), "toolless", mute)
    tool = {
        "type": "function",
        "name": "f",
        "parameters": {"type": "object", "properties": {}},
        "strict": False,
    }
    answer = alice.post(PATH, {**SAY, "model": "toolless", "background": True, "tools": [tool]})
    assert (answer.status_code, answer.json["error"]["param"]) == (400, "tools")
