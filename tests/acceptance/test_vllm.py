"""The promises on a real engine and a real model. An engine start takes half a minute on a laptop's CPU, which
is most of what these tests cost.
"""

import signal

import pytest

from app.db import transaction
from app.jobs.log import read_output
from app.jobs.queries import find_job
from tests.eventually import eventually

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

MODEL = "smollm2"
STORY = {
    "model": MODEL,
    "input": "Write a long story about a ship that sails around the world.",
    "max_output_tokens": 330,
    "ignore_eos": True,
    "temperature": 0,
}


@pytest.fixture
def vllm_stack(stack):
    stack.environment |= {"LONGHAUL_MODEL": MODEL, "LONGHAUL_SLOTS": "8"}
    stack.start("gpu")
    stack.wait_for_workers(MODEL, 1, 240)
    return stack


def token_ids(job_id):
    with transaction() as session:
        return read_output(session, find_job(session, job_id)).token_ids


def counted(job):
    """The tokens of a job; of its prompt the second job finds some in the cache."""
    return {name: job["usage"][name] for name in ("input_tokens", "output_tokens", "total_tokens")}


def test_ten_kills_in_mid_generation_change_no_token(vllm_stack):
    stack = vllm_stack
    undisturbed = stack.submit(**STORY)
    whole = stack.ended(undisturbed, 180)
    job_id = stack.submit(**STORY)
    following = stack.follow(job_id)
    for _ in range(10):
        shown = len(following.seen.text)
        eventually(lambda shown=shown: len(following.seen.text) > shown + 60, 240, stack.tail())
        stack.kill("gpu")
        stack.start("gpu")
    seen = following.ended(240)
    job = stack.job(job_id)
    assert job["attempt"] == 11
    assert token_ids(job_id) == token_ids(undisturbed)
    assert seen.text == job["output"]["text"] == whole["output"]["text"]
    assert seen.rewinds == []
    assert counted(job) == counted(whole)


def test_under_load_a_kill_changes_no_token_that_was_stored(vllm_stack):
    """Results shift with the composition of the batch, so only what was stored before can be compared."""
    stack = vllm_stack
    jobs = [
        stack.submit(**{**STORY, "input": f"Tell story number {n}.", "max_output_tokens": 80}) for n in range(8)
    ]
    following = [stack.follow(job_id) for job_id in jobs]
    eventually(lambda: all(len(token_ids(job_id)) > 10 for job_id in jobs), 120, stack.tail())
    stored = {job_id: token_ids(job_id) for job_id in jobs}
    stack.kill("gpu")
    stack.start("gpu")
    for job_id, follower in zip(jobs, following, strict=True):
        seen = follower.ended(240)
        job = stack.job(job_id)
        assert token_ids(job_id)[: len(stored[job_id])] == stored[job_id]
        assert len(token_ids(job_id)) == job["usage"]["output_tokens"] == 80
        assert seen.text == job["output"]["text"]
    assert stack.kill("gpu", signal.SIGTERM, 120) == 0


def test_a_preempted_job_goes_on_where_it_was(vllm_stack):
    stack = vllm_stack
    body = {**STORY, "tier": "batch", "max_output_tokens": 160}
    jobs = [stack.submit(**{**body, "input": f"Tell story number {n}."}) for n in range(8)]
    following = {job_id: stack.follow(job_id) for job_id in jobs}
    eventually(lambda: all(len(token_ids(job_id)) > 5 for job_id in jobs), 120, stack.tail())
    stored = {job_id: token_ids(job_id) for job_id in jobs}
    chat = stack.ended(stack.submit(model=MODEL, input="What is the capital of France?", temperature=0), 60)
    assert "Paris" in chat["output"]["text"]
    ended = {job_id: stack.ended(job_id, 240) for job_id in jobs}
    first_free = min(job["finished_at"] for job in ended.values())
    assert chat["started_at"] <= first_free, "it waited for a slot"
    assert sum(job["preemptions"] for job in ended.values()) >= 1
    for job_id, job in ended.items():
        seen = following[job_id].ended(60)
        assert (seen.text, seen.rewinds) == (job["output"]["text"], [])
        assert token_ids(job_id)[: len(stored[job_id])] == stored[job_id]
        assert len(token_ids(job_id)) == job["usage"]["output_tokens"] == 160


def test_the_sample_question_is_answered(vllm_stack):
    job_id = vllm_stack.submit(
        model=MODEL, input="What is the capital of France?", temperature=0, max_output_tokens=64
    )
    job = vllm_stack.ended(job_id)
    assert job["status"] == "completed"
    assert "Paris" in job["output"]["text"]
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    }
    structured = vllm_stack.submit(
        model=MODEL,
        input="Name a city as JSON.",
        max_output_tokens=200,
        text={"format": {"type": "json_schema", "name": "city", "schema": schema}},
    )
    import json

    assert list(json.loads(vllm_stack.ended(structured)["output"]["text"])) == ["city"]
