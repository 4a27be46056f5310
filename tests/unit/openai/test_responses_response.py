"""The Response object of a job, whatever stands with it."""

import pytest

from app.jobs import parts as parts_of
from app.jobs.log import Output
from app.jobs.states import Status
from app.openai.responses.body import CreateResponse, echo, to_request
from app.openai.responses.response import describe
from tests.openai_contract import RESPONSE, faults
from tests.unit.openai.logs import AT, logprob, make_job

PARTS = (parts_of.reasoning("Hm", 2), parts_of.text("Well"), parts_of.call(0, "c1", "add"))
EVERYTHING = {
    "model": "m",
    "input": [{"role": "user", "content": "Hi"}],
    "background": True,
    "instructions": "Be brief.",
    "max_output_tokens": 20,
    "metadata": {"a": "b"},
    "previous_response_id": "resp_0",
    "prompt_cache_key": "k",
    "safety_identifier": "s",
    "service_tier": "flex",
    "store": False,
    "temperature": 0.5,
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": False}},
    "tool_choice": "auto",
    "tools": [{"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": True}],
    "top_logprobs": 2,
    "top_p": 0.9,
    "truncation": "auto",
    "user": "u",
}


def job_of(status, given):
    body = CreateResponse(**given)
    job = make_job(status, echo=echo(body))
    job.request = to_request(body).model_dump(mode="json", by_alias=True)
    job.labels = body.metadata
    return job


@pytest.mark.parametrize("given", [{"model": "m", "input": "Hi"}, EVERYTHING], ids=["least", "most"])
@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("output", [Output(), Output("x", parts=PARTS), Output("Hi", (1,), (logprob("Hi"),))])
def test_every_response_is_openais(status, given, output):
    said = describe(job_of(status, given), output)
    assert not faults(RESPONSE, said)


def test_it_says_again_what_it_was_asked():
    said = describe(job_of(Status.COMPLETED, EVERYTHING), Output("Hi"))
    for name in EVERYTHING.keys() - {"input", "text", "tools"}:
        assert said[name] == EVERYTHING[name], name
    assert said["text"]["format"] == EVERYTHING["text"]["format"]
    assert said["tools"][0]["strict"] is True


def test_a_running_response_shows_its_output_so_far():
    said = describe(job_of(Status.IN_PROGRESS, {"model": "m", "input": "Hi"}), Output("x", parts=PARTS))
    assert [item["status"] for item in said["output"]] == ["completed", "completed", "in_progress"]
    assert said["output"][-1]["arguments"] == ""
    assert "usage" not in said


def test_an_ended_response_says_what_it_used():
    said = describe(job_of(Status.COMPLETED, {"model": "m", "input": "Hi"}), Output("x", parts=PARTS))
    assert said["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 16,
    }
    assert said["completed_at"] == AT.timestamp()


@pytest.mark.parametrize(
    ("reason", "details"), [("max_output_tokens", {"reason": "max_output_tokens"}), ("total_timeout", {})]
)
def test_no_reason_leaves_us_that_openai_does_not_know(reason, details):
    job = make_job(Status.INCOMPLETE, incomplete_reason=reason)
    assert describe(job, Output("Hi"))["incomplete_details"] == details


@pytest.mark.parametrize(
    ("code", "told"), [("invalid_prompt", "invalid_prompt"), ("engine_dead", "server_error")]
)
def test_no_error_code_leaves_us_that_openai_does_not_know(code, told):
    job = make_job(Status.FAILED, error_code=code)
    assert describe(job, Output())["error"] == {"code": told, "message": "It broke."}
