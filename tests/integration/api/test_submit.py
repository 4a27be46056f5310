"""`POST /v1/jobs`."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, select

from app.db import transaction
from app.jobs.queries import find_job
from app.jobs.tables import Job


def jobs_stored():
    with transaction() as session:
        return session.scalar(select(func.count()).select_from(Job))


def test_a_job_is_accepted_and_stored(alice):
    answer = alice.submit(tier="batch", metadata={"team": "red"})
    job = answer.json
    assert answer.status_code == 202
    assert answer.headers["Location"] == job["urls"]["self"] == f"/v1/jobs/{job['id']}"
    assert {key: job[key] for key in ("object", "status", "model", "tier")} == {
        "object": "job",
        "status": "queued",
        "model": "faulty",
        "tier": "batch",
    }
    assert isinstance(job["created_at"], int)
    assert job["urls"] == {
        "self": f"/v1/jobs/{job['id']}",
        "events": f"/v1/jobs/{job['id']}/events",
        "stream": f"/v1/jobs/{job['id']}/stream",
        "cancel": f"/v1/jobs/{job['id']}/cancel",
    }
    assert jobs_stored() == 1


def test_the_stored_request_has_the_default_output_limit_of_the_model(alice):
    job_id = alice.submit().json["id"]
    with transaction() as session:
        job = find_job(session, job_id)
    assert job.request["max_output_tokens"] == 64


def test_a_minimum_above_the_default_raises_the_limit(alice):
    job_id = alice.submit(min_output_tokens=100).json["id"]
    with transaction() as session:
        assert find_job(session, job_id).request["max_output_tokens"] == 100


def test_a_schema_is_stored_under_the_name_that_clients_use(alice):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    job_id = alice.submit(text={"format": {"type": "json_schema", "schema": schema}}).json["id"]
    with transaction() as session:
        assert find_job(session, job_id).request["text"]["format"]["schema"] == schema


def test_the_same_key_and_body_give_the_same_job(alice):
    first = alice.submit(headers={"Idempotency-Key": "once"})
    again = alice.submit(headers={"Idempotency-Key": "once"})
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json["id"] == again.json["id"]
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.headers["Location"] == f"/v1/jobs/{first.json['id']}"
    assert jobs_stored() == 1


def test_a_body_that_says_the_same_in_other_words_is_the_same_body(alice):
    first = alice.post(
        "/v1/jobs",
        {"model": "faulty", "input": "x", "temperature": 1},
        headers={"Idempotency-Key": "once"},
    )
    again = alice.post(
        "/v1/jobs",
        {"temperature": 1.0, "tier": "interactive", "input": "x", "model": "faulty"},
        headers={"Idempotency-Key": "once"},
    )
    assert first.json["id"] == again.json["id"]


def test_eight_simultaneous_submissions_with_one_key_make_one_job(alice):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: alice.submit(headers={"Idempotency-Key": "race"}), range(8)))
    assert len({answer.json["id"] for answer in answers}) == 1
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [202]
    assert jobs_stored() == 1


def test_the_same_key_with_another_body_is_a_conflict_that_is_not_to_be_retried(alice):
    job_id = alice.submit(headers={"Idempotency-Key": "once"}).json["id"]
    answer = alice.submit(input="Something else.", headers={"Idempotency-Key": "once"})
    assert answer.status_code == 409
    assert answer.headers["x-should-retry"] == "false"
    assert answer.json["error"]["code"] == "idempotency_conflict"
    assert job_id in answer.json["error"]["message"]


def test_two_accounts_may_use_the_same_key(alice, mallory):
    ids = {who.submit(headers={"Idempotency-Key": "once"}).json["id"] for who in (alice, mallory)}
    assert len(ids) == 2


@pytest.mark.parametrize("key", ["", "x" * 256, "caf\u00e9"])
def test_an_idempotency_key_is_1_to_255_printable_characters(alice, key):
    answer = alice.submit(headers={"Idempotency-Key": key})
    assert answer.status_code == 400
    assert answer.json["error"]["param"] == "Idempotency-Key"


def test_an_unknown_model_is_not_found_and_the_known_ones_are_named(alice):
    answer = alice.submit(model="gpt-9")
    assert answer.status_code == 404
    assert answer.json["error"]["code"] == "model_not_found"
    assert answer.json["error"]["param"] == "model"
    for name in ("faulty", "smollm2", "simulated"):
        assert name in answer.json["error"]["message"]
    assert jobs_stored() == 0


@pytest.mark.parametrize(
    ("body", "param", "limit"),
    [
        ({"max_output_tokens": 4097}, "max_output_tokens", "4096"),
        ({"min_output_tokens": 4097}, "min_output_tokens", "4096"),
        ({"temperature": 2.5}, "temperature", "2"),
        ({"top_p": 0}, "top_p", "0"),
        ({"stop": ["x"] * 17}, "stop", "16"),
        ({"stop": ["x" * 257]}, "stop.0", "256"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata", "16"),
        ({"metadata": {"k" * 65: "x"}}, f"metadata.{'k' * 65}", "64"),
        ({"metadata": {"k": "v" * 513}}, "metadata.k", "512"),
        ({"timeouts": {"total_seconds": 0}}, "timeouts.total_seconds", "0"),
        ({"input": [{"role": "king", "content": "x"}]}, "input.0.role", "system"),
        ({"input": [{"role": "user"}]}, "input", "empty"),
        ({"input": 5}, "input", "string"),
        ({"tier": "express"}, "tier", "batch"),
        ({"kind": "agent"}, "kind", "generation"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema", "Missing"),
        ({"text": {"format": {"type": "xml"}}}, "text.format", "json_schema"),
        ({"tempurature": 1}, "tempurature", "Unknown"),
        ({"min_output_tokens": 9, "max_output_tokens": 8}, "min_output_tokens", "larger"),
        ({"input": ""}, "input", "empty"),
        ({"input": "x" * 1_000_001}, "input", "1000000"),
    ],
)
def test_a_bad_body_is_refused_with_the_field_and_its_limit(alice, body, param, limit):
    answer = alice.submit(**body)
    assert answer.status_code == 400, answer.json
    error = answer.json["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert limit in error["message"]
    assert jobs_stored() == 0


def test_a_missing_model_is_named(alice):
    answer = alice.post("/v1/jobs", {"input": "x"})
    assert (answer.status_code, answer.json["error"]["param"]) == (400, "model")


def test_a_job_is_accepted_while_redis_is_away(alice, monkeypatch):
    from app import dispatch

    monkeypatch.setattr(dispatch, "_sender", lambda: dispatch.Celery(broker="redis://127.0.0.1:1/0"))
    answer = alice.submit()
    assert answer.status_code == 202
