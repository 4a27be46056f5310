"""Anthropic's own SDK with message batches, against the processes as they run."""

from collections import Counter

import pytest
from anthropic import Anthropic

from tests.eventually import eventually

MODEL = "faulty"
SLOTS = 8


@pytest.fixture
def batches(stack):
    stack.start("batches")
    stack.start("gpu")
    stack.wait_for_workers(MODEL, 1)
    with Anthropic(base_url=stack.url, api_key=stack.key, max_retries=0) as client:
        yield client.messages.batches


def asking(custom_id, **params):
    said = {"model": MODEL, "max_tokens": 32, "messages": [{"role": "user", "content": "Tell me a story."}]}
    return {"custom_id": custom_id, "params": {**said, **params}}


def ended(batches, made, stack, seconds=60):
    return eventually(
        lambda: (found := batches.retrieve(made.id)).processing_status == "ended" and found,
        seconds,
        stack.tail(),
    )


def test_batches_are_run_cancelled_and_deleted(batches, stack):
    requests = [asking(f"request-{number}", system="Be brief.") for number in range(40)]
    requests[7]["params"]["max_tokens"] = -1
    made = batches.create(requests=requests)
    found = ended(batches, made, stack)
    assert (found.request_counts.succeeded, found.request_counts.errored) == (39, 1)
    results = list(batches.results(made.id))
    assert [result.custom_id for result in results] == [request["custom_id"] for request in requests]
    for number, one in enumerate(results):
        if number == 7:
            assert one.result.error.error.type == "invalid_request_error"
            continue
        message = one.result.message
        assert message.content[0].text
        assert message.stop_reason in {"end_turn", "max_tokens"}
        assert message.usage.output_tokens > 0
    batches.delete(made.id)
    assert not batches.list().data

    endless = batches.create(requests=[asking(str(number), max_tokens=3_000) for number in range(3 * SLOTS)])
    eventually(lambda: any(job["status"] == "in_progress" for job in jobs(stack)), 60, stack.tail())
    assert batches.cancel(endless.id).processing_status == "canceling"
    counts = ended(batches, endless, stack).request_counts
    kinds = Counter(one.result.type for one in batches.results(endless.id))
    assert counts.canceled >= 2 * SLOTS
    assert kinds == {"canceled": counts.canceled} | (
        {"succeeded": counts.succeeded} if counts.succeeded else {}
    )


def jobs(stack):
    return stack.http.get("/v1/jobs").json()["data"]
