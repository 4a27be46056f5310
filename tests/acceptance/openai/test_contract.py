"""The contract's checks can fail: each of these answers is wrong in one way, and it is said."""

import json

import pytest

from tests.openai_contract import CHAT, DOCUMENT, RESPONSE, Exchange, faults, faults_of, faults_of_event

GOOD = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1.0,
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "model": "m",
    "tools": [],
    "tool_choice": "auto",
    "output": [],
    "parallel_tool_calls": True,
    "metadata": {},
    "temperature": 1,
    "top_p": 1,
}
CREATED = {"type": "response.created", "sequence_number": 0, "response": GOOD}
needs_document = pytest.mark.skipif(
    not DOCUMENT.exists(), reason="OpenAI's document is not beside the repository"
)


def test_what_is_right_has_no_fault():
    assert faults(RESPONSE, GOOD) == []
    assert faults_of_event(CREATED) == []


@pytest.mark.parametrize(
    "change",
    [
        {"status": "expired"},
        {"error": {"code": "worker_lost", "message": "x"}},
        {"incomplete_details": {"reason": "timeout"}},
        {"service_tier": "batch"},
        {"created_at": "now"},
        {"output": [{"id": "msg_1", "type": "message", "role": "assistant", "status": "done", "content": []}]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_value_that_openai_does_not_know_is_found_by_the_types_alone(change):
    found = faults(RESPONSE, {**GOOD, **change})
    assert any(fault.startswith("SDK") for fault in found)
    assert faults_of_event({**CREATED, "response": {**GOOD, **change}})


@needs_document
def test_the_document_finds_what_the_types_let_pass():
    missing = {name: value for name, value in GOOD.items() if name != "metadata"}
    assert any("metadata" in fault for fault in faults(RESPONSE, missing))
    assert faults(RESPONSE, {**GOOD, "surprise": 1}) == ["field 'surprise' is not OpenAI's"]
    chat = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": []}
    assert faults(CHAT, chat) == []
    assert faults(CHAT, {**chat, "service_tier": "ultrafast"})


def test_an_event_that_does_not_exist_is_found():
    assert faults_of_event({"type": "response.cancelled", "sequence_number": 1, "response": GOOD})


def test_a_stream_is_read_as_bytes():
    def stream(text, *, cut=False):
        return faults_of(Exchange("POST", "/v1/responses", 200, "text/event-stream", text.encode(), cut))

    data = json.dumps(CREATED)
    assert stream(f": ping\n\nevent: response.created\ndata: {data}\n\n") == []
    assert stream(f"event: response.queued\ndata: {data}\n\n")
    assert stream(f"event: response.created\ndata: {data}\n\nevent: resp", cut=True) == []
    with pytest.raises(AssertionError):
        stream(f"id: 1\nevent: response.created\ndata: {data}\n\n")


def test_an_error_has_all_four_fields():
    def refusal(error):
        body = json.dumps({"error": error}).encode()
        return faults_of(Exchange("POST", "/v1/responses", 400, "application/json", body))

    whole = {"type": "invalid_request_error", "code": "x", "message": "x", "param": None}
    assert refusal(whole) == []
    assert refusal({**whole, "message": None})
