"""`client.files` and `client.batches`, unmodified, and what batches can besides."""

import json
from decimal import Decimal

import httpx
import openai.types as sdk
import orjson
import pytest
from openai import BadRequestError, ConflictError, NotFoundError
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from websockets.sync.client import connect

from tests.acceptance.openai.conftest import MODEL
from tests.eventually import eventually

CHAT = "/v1/chat/completions"
ENDED = {"completed", "failed", "cancelled", "expired"}
SLOW = "[[step_ms=20]] A long story."


def chat(text, **more):
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 400, **more}


def upload(client, bodies, endpoint=CHAT):
    lines = [
        {"custom_id": f"line-{number}", "method": "POST", "url": endpoint, "body": body}
        for number, body in enumerate(bodies, 1)
    ]
    content = "\n".join(map(json.dumps, lines))
    return client.files.create(file=("lines.jsonl", content.encode()), purpose="batch").id


def create(client, bodies, endpoint=CHAT, **more):
    file_id = upload(client, bodies, endpoint)
    return client.batches.create(
        input_file_id=file_id, endpoint=endpoint, **{"completion_window": "24h", **more}
    )


def once(client, batch, condition, seconds=60):
    """The batch as soon as it meets a condition."""

    def found():
        now = client.batches.retrieve(batch.id)
        return now if condition(now) else None

    return eventually(found, seconds, f"{client.batches.retrieve(batch.id)}")


def ended(client, batch, seconds=60):
    return once(client, batch, lambda now: now.status in ENDED, seconds)


def lines_of(client, file_id):
    return [json.loads(line) for line in client.files.content(file_id).text.splitlines()]


def read(stack, batch, name):
    return [orjson.loads(line) for line in stack.http.get(f"/v1/batches/{batch.id}/{name}").iter_lines()]


def bodies_of(endpoint):
    """Two that say `one` and `two`, in the endpoint's words."""
    said = ["[[say=one]] Go.", "[[say=two]] Go."]
    match endpoint:
        case "/v1/chat/completions":
            return [chat(text) for text in said]
        case "/v1/completions":
            return [{"model": MODEL, "prompt": text} for text in said]
        case _:
            return [{"model": MODEL, "input": text} for text in said]


TEXT_OF = {
    "/v1/chat/completions": lambda body: ChatCompletion.model_validate(body).choices[0].message.content,
    "/v1/completions": lambda body: sdk.Completion.model_validate(body).choices[0].text,
    "/v1/responses": lambda body: Response.model_validate(body).output_text,
    "/v1/jobs": lambda body: body["output"]["text"],
}


@pytest.mark.parametrize("endpoint", TEXT_OF)
def test_a_batch_of_every_endpoint_leaves_its_answers_in_order(client, endpoint):
    batch = create(client, bodies_of(endpoint), endpoint, metadata={"night": "7"})
    assert (batch.status, batch.endpoint, batch.metadata) == ("validating", endpoint, {"night": "7"})
    done = ended(client, batch)
    assert (done.status, done.model, done.errors, done.error_file_id) == ("completed", MODEL, None, None)
    counts = done.request_counts
    assert (counts.total, counts.completed, counts.failed) == (2, 2, 0)
    assert done.created_at <= done.in_progress_at <= done.finalizing_at <= done.completed_at
    found = lines_of(client, done.output_file_id)
    assert [line["custom_id"] for line in found] == ["line-1", "line-2"]
    assert [TEXT_OF[endpoint](line["response"]["body"]) for line in found] == ["one", "two"]
    assert all(line["response"]["status_code"] == 200 and line["error"] is None for line in found)
    used = done.usage
    assert used.total_tokens == used.input_tokens + used.output_tokens > 0


def test_a_batch_costs_half_of_what_it_used_and_says_so_in_advance(client):
    done = ended(client, create(client, [chat("[[tokens=9]] Count.", max_tokens=10)] * 3))
    used = done.usage
    cached = used.input_tokens_details.cached_tokens
    full = (used.input_tokens - cached) * 2 + cached + used.output_tokens * 4
    assert Decimal(done.cost) == Decimal(full) / 1_000_000 / 2
    assert done.estimate["max_output_tokens"] == 30
    assert Decimal(done.estimate["cost_input"]) < Decimal(done.cost) <= Decimal(done.estimate["cost_max"])


def test_batches_are_listed_from_page_to_page_and_found_again(client):
    made = [create(client, [chat("[[say=x]] Go.")]) for _ in range(3)]
    for batch in made:
        ended(client, batch)
    listed = [batch.id for batch in client.batches.list(limit=2)]
    assert listed[:3] == [batch.id for batch in reversed(made)]
    assert client.batches.list(limit=2, after=listed[0]).data[0].id == listed[1]
    with pytest.raises(NotFoundError):
        client.batches.retrieve("batch_nothing")


def test_the_same_key_gives_the_same_batch(client):
    body = {"input_file_id": upload(client, [chat("[[say=x]] Go.")]), "endpoint": CHAT}
    key = {"Idempotency-Key": "once"}
    first, again = (client.batches.create(**body, completion_window="24h", extra_headers=key) for _ in range(2))
    assert first.id == again.id
    with pytest.raises(ConflictError):
        client.batches.create(**body, completion_window="8h", extra_headers=key)
    ended(client, first)


def test_files_of_a_batch_expire_when_they_are_told_to(client):
    batch = create(
        client, [chat("[[say=x]] Go.")], output_expires_after={"anchor": "created_at", "seconds": 7200}
    )
    file = client.files.retrieve(ended(client, batch).output_file_id)
    assert file.expires_at - file.created_at == 7200
    assert file.purpose == "batch_output"
    assert file.filename == f"{batch.id}_output.jsonl"


def test_every_bad_line_of_a_file_is_told(client, stack):
    batch = create(client, [chat("Fine."), chat("Bad.", temperature=9), chat("Two.", n=2)])
    failed = ended(client, batch)
    assert (failed.status, failed.output_file_id) == ("failed", None)
    assert failed.errors.object == "list"
    assert [(fault.line, fault.param) for fault in failed.errors.data] == [
        (2, "body.temperature"),
        (3, "body.n"),
    ]
    assert all(fault.code and fault.message for fault in failed.errors.data)
    assert [line["line"] for line in read(stack, batch, "errors")] == [2, 3]


def test_what_is_no_batch_is_refused_by_name(client):
    file_id = upload(client, [chat("x")])
    for body, param in (
        ({"input_file_id": "file_nothing"}, "input_file_id"),
        ({"endpoint": "/v1/embeddings-of-my-own"}, "endpoint"),
        ({"completion_window": "3d"}, "completion_window"),
    ):
        given = {"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h", **body}
        with pytest.raises((BadRequestError, NotFoundError)) as refusal:
            client.batches.create(**given)
        assert refusal.value.param == param


def test_one_bad_line_fails_alone_and_is_run_again_alone(client):
    batch = create(client, [chat("[[say=one]] Go."), chat("[[reject]] Go."), chat("[[say=three]] Go.")])
    done = ended(client, batch)
    assert done.status == "completed"
    assert (done.request_counts.completed, done.request_counts.failed) == (2, 1)
    assert [line["custom_id"] for line in lines_of(client, done.output_file_id)] == ["line-1", "line-3"]
    (failure,) = lines_of(client, done.error_file_id)
    assert (failure["custom_id"], failure["error"]) == ("line-2", None)
    assert failure["response"]["status_code"] >= 400
    assert failure["response"]["body"]["error"]["message"]
    again = client.post(f"/batches/{batch.id}/retry", cast_to=sdk.Batch)
    assert (again.retry_of, again.request_counts.total) == (batch.id, 1)
    assert ended(client, again).request_counts.failed == 1


def test_output_is_read_and_a_line_cancelled_while_the_batch_runs(client, stack):
    batch = create(client, [chat("[[say=quick]] Go."), chat(SLOW, max_tokens=2000)])
    (first,) = eventually(lambda: read(stack, batch, "output"), 30)
    assert first["response"]["body"]["choices"][0]["message"]["content"] == "quick"
    now = once(client, batch, lambda now: now.running == 1)
    assert (now.status, now.request_counts.completed, now.output_file_id) == ("in_progress", 1, None)
    stopped = stack.http.post(f"/v1/batches/{batch.id}/lines/2/cancel").json()
    assert (stopped["custom_id"], stopped["status"]) == ("line-2", "cancelled")
    done = ended(client, batch)
    assert (done.status, done.request_counts.completed, done.request_counts.failed) == ("completed", 1, 1)
    (error,) = lines_of(client, done.error_file_id)
    assert (error["custom_id"], error["error"]["code"]) == ("line-2", "job_cancelled")


def test_a_cancelled_batch_stops_what_runs_and_keeps_what_it_said(client, stack):
    bodies = [chat("[[say=quick]] Go.")] + [chat(SLOW, max_tokens=2000)] * 20
    batch = create(client, bodies)
    once(client, batch, lambda now: now.request_counts.completed and now.running == 16)
    assert client.batches.cancel(batch.id).status == "cancelling"
    # Each line would take 40 seconds more.
    done = ended(client, batch, 30)
    assert done.status == "cancelled"
    assert done.cancelled_at >= done.cancelling_at
    assert (done.request_counts.completed, done.request_counts.failed) == (1, 20)
    assert len(lines_of(client, done.output_file_id)) == 1
    errors = lines_of(client, done.error_file_id)
    assert {line["error"]["code"] for line in errors} == {"batch_cancelled"}
    partial = [line["response"]["body"] for line in errors if line["response"]]
    assert len(partial) >= 16
    assert sum(body["usage"]["completion_tokens"] for body in partial) < done.usage.output_tokens
    assert client.batches.cancel(batch.id).status == "cancelled"


def test_a_batch_is_followed_to_its_end_by_events_and_by_websocket(client, stack):
    batch = create(client, [chat("[[step_ms=10]] [[tokens=300]] Go.")] * 4)
    path = f"/v1/batches/{batch.id}"
    url = f"{stack.url.replace('http', 'ws')}{path}/stream"
    key = {"Authorization": f"Bearer {stack.key}"}
    with connect(url, additional_headers=key, proxy=None) as socket:
        sent = list(events(stack, f"{path}/events"))
        assert [orjson.loads(message) for message in socket] == sent
    assert [event["seq"] for event in sent] == [*range(1, len(sent) + 1)]
    types = [event["type"] for event in sent]
    assert types[:2] == ["batch.validating", "batch.in_progress"]
    assert types[-2:] == ["batch.finalizing", "batch.completed"]
    assert "batch.progress" in types
    assert sent[-1]["request_counts"] == {"total": 4, "completed": 4, "failed": 0}


def events(stack, path):
    """Server-sent events, to the end of the stream."""
    headers = {"Accept": "text/event-stream"}
    with stack.http.stream("GET", path, headers=headers, timeout=httpx.Timeout(60)) as response:
        for line in response.iter_lines():
            if line.startswith("data: "):
                yield orjson.loads(line[6:])
