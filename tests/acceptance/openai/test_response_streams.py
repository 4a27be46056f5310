"""Streams of `client.responses`: complete, cut and resumed, and read again long after their end."""

import json
import signal

import pytest
from openai import APITimeoutError
from pydantic import BaseModel

from tests.acceptance.openai.conftest import MODEL
from tests.acceptance.openai.story import Story
from tests.acceptance.openai.test_responses import SHORT, SLOW, ended
from tests.eventually import eventually
from workers.embedded.server import free_port

STORY = {"model": MODEL, "input": "[[step_ms=10]] Tell me a story.", "temperature": 0, "max_output_tokens": 300}


def follow(stream, story, until=None):
    """Read a stream into a story, to its end or until a condition holds; what was read is closed."""
    with stream:
        for event in stream:
            story.take(event.to_dict())
            if until is not None and until(story):
                break
    return story


def shows(chars):
    return lambda story: len(story.text) > chars


def resumed(client, story):
    return client.responses.retrieve(story.created["id"], stream=True, starting_after=story.numbers[-1])


def test_a_stream_tells_the_whole_story(client):
    story = follow(client.responses.create(**SHORT, stream=True), Story())
    assert list(dict.fromkeys(story.types)) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert story.numbers == list(range(len(story.numbers)))
    assert story.text == "Hello there."
    assert story.response == client.responses.retrieve(story.response["id"]).to_dict()


def test_a_background_stream_says_that_it_waits(client):
    story = follow(client.responses.create(**SHORT, stream=True, background=True), Story())
    assert story.types[:3] == ["response.created", "response.queued", "response.in_progress"]
    assert story.response["background"] is True


def test_reasoning_is_told_before_the_answer(client):
    body = {"model": MODEL, "input": "[[think=Let me see.]] [[say=Yes.]]"}
    story = follow(client.responses.create(**body, stream=True), Story())
    assert story.types.index("response.reasoning_text.done") < story.types.index("response.output_text.delta")
    assert (story.reasoning.strip(), story.text.strip()) == ("Let me see.", "Yes.")


def test_logprobs_come_with_the_deltas(client):
    stream = client.responses.create(
        **SHORT, stream=True, include=["message.output_text.logprobs"], top_logprobs=1
    )
    with stream:
        tokens = [
            one.token
            for event in stream
            if event.type == "response.output_text.delta"
            for one in event.logprobs
        ]
    assert "".join(tokens) == "Hello there."


def test_the_stream_helper_gives_the_final_response(client):
    with client.responses.stream(**SHORT) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert snapshots[-1] == final.output_text == "Hello there."


class City(BaseModel):
    name: str


def test_the_stream_helper_parses_a_pydantic_model(client):
    with client.responses.stream(model=MODEL, input="Name a city.", text_format=City) as stream:
        final = stream.get_final_response()
    assert isinstance(final.output_parsed, City)


def test_the_stream_helper_resumes_after_a_number(client, other):
    background = client.responses.create(**SHORT, background=True, stream=True)
    story = follow(background, Story())
    response_id = story.response["id"]
    with other.responses.stream(response_id=response_id, starting_after=4) as stream:
        numbers = [event.sequence_number for event in stream]
        final = stream.get_final_response()
    assert numbers == [number for number in story.numbers if number > 4]
    assert final.output_text == "Hello there."


def test_a_stream_cut_in_the_middle_goes_on_at_another_web_process(client, other):
    undisturbed = follow(client.responses.create(**STORY, stream=True), Story())
    story = Story()
    follow(client.responses.create(**STORY, stream=True, background=True), story, until=shows(150))
    for target in (other, client, other):
        follow(resumed(target, story), story, until=shows(len(story.text) + 150))
    follow(resumed(client, story), story)
    assert story.text == undisturbed.text
    assert story.types[-1] == "response.incomplete"
    assert story.numbers == sorted(set(story.numbers))


def test_a_worker_killed_in_mid_stream_costs_no_text(client, stack):
    undisturbed = follow(client.responses.create(**STORY, stream=True), Story())
    story, seen = Story(), 0
    with client.responses.create(**STORY, stream=True) as stream:
        for event in stream:
            story.take(event.to_dict())
            if seen < 2 and len(story.text) > 150 * (seen + 1):
                seen += 1
                stack.kill("gpu")
                stack.start("gpu")
    assert seen == 2
    assert story.text == undisturbed.text
    assert stack.job(story.response["id"].replace("resp_", "job_"))["attempt"] == 3
    replayed = follow(client.responses.retrieve(story.response["id"], stream=True), Story())
    assert (replayed.numbers, replayed.types) == (story.numbers, story.types)
    assert replayed.response == story.response


LONG = {name: {"type": "string", "minLength": 10} for name in ("harbour", "captain", "cargo", "weather")}
SCHEMA = {"type": "object", "properties": LONG, "required": list(LONG), "additionalProperties": False}
ARGUMENTS = {name: f"something about the {name}" for name in LONG}


def calling(*, strict):
    tool = {"type": "function", "name": "sail", "parameters": SCHEMA, "strict": strict}
    return {"input": f"[[step_ms=40]] [[call=sail {json.dumps(ARGUMENTS)}]]", "tools": [tool]}


@pytest.mark.parametrize(
    "body",
    [
        {
            "input": "[[step_ms=40]] As JSON.",
            "text": {"format": {"type": "json_schema", "name": "ship", "schema": SCHEMA}},
        },
        calling(strict=False),
        calling(strict=True),
        {"input": f"[[step_ms=40]] [[think={'Let me think of it. ' * 5}]] [[say={'So it is. ' * 5}]]"},
    ],
    ids=["schema", "call", "strict call", "reasoning"],
)
def test_a_worker_killed_amid_calls_formats_and_thoughts_doubles_nothing(client, stack, body):
    """What a grammar holds starts anew and is compared with what was shown; the rest goes on where it was."""
    story, shown, killed = Story(), 0, False
    with client.responses.create(model=MODEL, temperature=0, **body, stream=True) as stream:
        for event in stream:
            story.take(event.to_dict())
            shown += event.type.endswith(".delta")
            if shown > 8 and not killed:
                killed = True
                stack.kill("gpu")
                stack.start("gpu")
    assert killed
    assert story.types[-1] == "response.completed", (story.response["error"], stack.tail())
    assert stack.job(story.response["id"].replace("resp_", "job_"))["attempt"] == 2
    item = story.response["output"][-1]
    if item["type"] == "function_call":
        assert json.loads(item["arguments"]) == ARGUMENTS
    elif story.reasoning:
        assert story.reasoning.count("Let me think") == story.text.count("So it is") == 5
    else:
        assert set(json.loads(story.text)) == set(LONG)
    later = follow(client.responses.retrieve(story.response["id"], stream=True), Story())
    assert (later.response, later.text, later.reasoning) == (story.response, story.text, story.reasoning)


@pytest.mark.parametrize(
    ("end", "body"),
    [
        ("completed", SHORT),
        ("incomplete", {"model": MODEL, "input": "A story.", "max_output_tokens": 16}),
        ("failed", {"model": MODEL, "input": "[[reject]]"}),
        ("cancelled", {**SLOW, "input": "[[step_ms=30]] Slow."}),
    ],
)
def test_resumed_readers_of_every_end_get_there(client, other, end, body):
    response = client.responses.create(**body, background=True)
    waiting = client.responses.retrieve(response.id, stream=True)
    if end == "cancelled":
        eventually(lambda: client.responses.retrieve(response.id).output_text, 20)
        other.responses.cancel(response.id)
    live = follow(waiting, Story())
    assert live.response["status"] == end
    later = follow(other.responses.retrieve(response.id, stream=True), Story())
    assert (later.numbers, later.types, later.text) == (live.numbers, live.types, live.text)
    assert later.response == live.response
    for after in (0, live.numbers[-2]):
        with other.responses.retrieve(response.id, stream=True, starting_after=after) as stream:
            numbers = [event.sequence_number for event in stream]
        assert numbers == [number for number in live.numbers if number > after]
    with other.responses.retrieve(response.id, stream=True, starting_after=live.numbers[-1]) as stream:
        assert list(stream) == []


def test_a_reader_of_a_response_that_waits_for_a_worker_gets_comments_and_goes_on(client, stack, recorder):
    body = {**SHORT, "input": "[[say=At last.]]"}
    stack.kill("gpu", signal.SIGTERM)
    stream = client.responses.create(**body, stream=True, background=True)
    story = Story()
    with stream:
        events = iter(stream)
        story.take(next(events).to_dict())
        stack.start("gpu")
        for event in events:
            story.take(event.to_dict())
    assert story.text == "At last."
    assert b": ping\n\n" in recorder.last.body


def test_a_client_that_goes_away_cancels_and_its_partial_stays(client):
    stream = client.responses.create(**SLOW, stream=True)
    story = follow(stream, Story(), until=shows(40))
    done = ended(client, story.created["id"], 15)
    assert done.status == "cancelled"
    assert done.output_text.startswith(story.text)


def test_a_client_may_go_away_and_let_it_go_on(client):
    body = {"model": MODEL, "input": "[[step_ms=10]] A story.", "max_output_tokens": 150}
    stream = client.responses.create(**body, stream=True, metadata={"on_disconnect": "continue"})
    story = follow(stream, Story(), until=shows(40))
    done = ended(client, story.created["id"], 15)
    assert (done.status, done.usage.output_tokens) == ("incomplete", 150)


def test_a_plain_call_whose_client_goes_away_is_cancelled(client, stack):
    with pytest.raises(APITimeoutError):
        client.with_options(timeout=1.0).responses.create(**SLOW)
    newest = stack.http.get("/v1/jobs", params={"limit": 1}).json()["data"][0]
    assert stack.ended(newest["id"])["status"] == "cancelled"


@pytest.mark.parametrize(("extras", "status"), [({}, "incomplete"), ({"on_disconnect": "cancel"}, "cancelled")])
def test_one_with_a_key_goes_on_unless_it_is_to_be_cancelled(client, extras, status):
    """Who has a key can come back; and finds what became of it."""
    body = {"model": MODEL, "input": "[[step_ms=10]] A story.", "max_output_tokens": 150}
    options = {"extra_headers": {"Idempotency-Key": f"gone {status}"}, "metadata": extras}
    with pytest.raises(APITimeoutError):
        client.with_options(timeout=0.8).responses.create(**body, **options)
    attached = client.responses.create(**body, **options)
    assert attached.status == status
    assert attached.output_text


def test_a_web_process_that_stops_says_how_to_go_on(stack, client, make_client):
    port = free_port()
    stack.start_web("web3", port)
    story, error, stopping = Story(), None, None
    stream = make_client(f"http://127.0.0.1:{port}").responses.create(**STORY, stream=True, background=True)
    with stream:
        for event in stream:
            if event.type == "error":
                error = event
                break
            story.take(event.to_dict())
            if len(story.text) > 100 and stopping is None:
                stopping = stack.processes.pop("web3")
                stopping.send_signal(signal.SIGTERM)
    assert error is not None
    assert stopping.wait(30) == 0
    assert error.code == "server_stopping"
    assert follow(resumed(client, story), story).response["usage"]["output_tokens"] == 300
