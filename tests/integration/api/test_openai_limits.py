"""Limits of OpenAI's calls, at their edges, as a client meets them."""

import pytest

from app.accounts import keys
from app.db import transaction
from app.gate.admission import publish
from app.redis import client
from config.queues import Tier
from config.settings import settings
from tests.integration.api.openai import Call
from tests.integration.gate.gate import measure

RESPONSES, CHAT = "/v1/responses", "/v1/chat/completions"
HI = [{"role": "user", "content": "Hi."}]

pytestmark = pytest.mark.usefixtures("served")


def tools(count):
    return [{"type": "function", "name": f"f{number}", "strict": False} for number in range(count)]


def pairs(count):
    return {str(number): "x" for number in range(count)}


def nested(levels):
    """A schema of so many levels."""
    schema = {"type": "string"}
    while levels > 3:
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
        levels -= 2
    return schema


@pytest.mark.parametrize(
    ("fits", "does_not", "param"),
    [
        ({"tools": tools(128)}, {"tools": tools(129)}, "tools"),
        ({"stop": ["x"] * 16}, {"stop": ["x"] * 17}, "stop"),
        ({"stop": ["x" * 256]}, {"stop": ["x" * 257]}, "stop.0"),
        ({"metadata": pairs(16)}, {"metadata": pairs(17)}, "metadata"),
        ({"top_logprobs": 20}, {"top_logprobs": 21}, "top_logprobs"),
        ({"max_output_tokens": 32_000}, {"max_output_tokens": 32_769}, "max_output_tokens"),
        ({"temperature": 2}, {"temperature": 2.01}, "temperature"),
    ],
)  # fmt: skip
def test_a_limit_of_responses_holds_at_its_edge(alice, fits, does_not, param):
    body = {"model": "simulated", "input": "Hi.", "background": True}
    assert alice.post(RESPONSES, {**body, **fits}).status_code == 200
    answer = alice.post(RESPONSES, {**body, **does_not})
    assert (answer.status_code, answer.json["error"]["param"]) == (400, param), answer.json


def test_a_call_may_have_eight_choices_and_no_more(alice):
    answer = alice.post(CHAT, {"model": "faulty", "messages": HI, "n": 9})
    assert (answer.status_code, answer.json["error"]["param"]) == (400, "n")
    answer = alice.post("/v1/completions", {"model": "faulty", "prompt": ["a"] * 3, "n": 3})
    assert answer.status_code == 400
    assert alice.get("/v1/jobs").json["data"] == []


def test_a_schema_that_is_too_deep_never_becomes_a_job(alice):
    body = {"model": "faulty", "input": "Hi.", "background": True}
    for levels, status in ((15, 200), (19, 400)):
        form = {"type": "json_schema", "name": "x", "strict": False, "schema": nested(levels)}
        answer = alice.post(RESPONSES, {**body, "text": {"format": form}})
        assert answer.status_code == status, answer.json
    assert len(alice.get("/v1/jobs").json["data"]) == 1


def test_a_body_that_is_too_large_is_refused(alice):
    body = {"model": "faulty", "input": "x" * settings().max_body_bytes}
    answer = alice.post(RESPONSES, body)
    assert (answer.status_code, answer.json["error"]["code"]) == (413, "request_entity_too_large")


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_whose_turn_would_come_too_late_is_refused_at_once(threaded_server, alice, make_account, stream):
    waiting = {make_account("alice").id: (10, 100_000)}
    late = measure(Tier.BATCH, jobs=10, tokens=100_000, tokens_per_second=100.0, accounts=waiting)
    publish(client(), [late], {})
    assert settings().max_sync_seconds < 1000
    body = {"model": "faulty", "messages": HI, "service_tier": "flex", "stream": stream}
    made = Call(threaded_server, CHAT, alice.secret, body).ended(5)
    assert (made.status, made.json["error"]["code"]) == (504, "sync_timeout")
    assert "background" in made.json["error"]["message"]
    assert made.headers["x-should-retry"] == "false"
    assert [job["status"] for job in alice.get("/v1/jobs").json["data"]] == ["cancelled"]
    background = {"model": "faulty", "input": "Hi.", "service_tier": "flex", "background": True}
    assert alice.post(RESPONSES, background).json["status"] == "queued"


def test_a_full_line_refuses_every_choice_of_a_call(alice, make_account):
    make_account("alice")
    with transaction() as session:
        keys.find_account(session, "alice").requests_per_minute = 2
    answer = alice.post(CHAT, {"model": "faulty", "messages": HI, "n": 3})
    assert (answer.status_code, answer.json["error"]["code"]) == (429, "rate_limit_exceeded")
    assert {job["status"] for job in alice.get("/v1/jobs").json["data"]} == {"cancelled"}


def test_what_is_wrong_with_a_job_is_said_in_the_words_of_the_call(alice):
    asked = {"model": "faulty", "messages": HI, "max_tokens": 1_000_000}
    error = alice.post(CHAT, asked).json["error"]
    assert error["param"] == "max_completion_tokens"
    assert "max_output_tokens" not in error["message"]
    asked = {"model": "faulty", "prompt": "x " * 40_000}
    error = alice.post("/v1/completions", asked).json["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
