"""What is promised of webhooks: signed, at least once, and never at the cost of a job."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from openai import InvalidWebhookSignatureError, OpenAI
from openai.types.webhooks import ResponseCompletedWebhookEvent
from standardwebhooks import Webhook

from tests.acceptance.stack import Stack, running
from tests.eventually import eventually
from tests.receiver import Receiver, answer, hang

PROMPT = {"model": "faulty", "input": "[[say=Done.]] Say that."}
TIMEOUT_SECONDS = 1.0


@pytest.fixture(scope="module")
def stack(services: dict[str, str], tmp_path_factory: Any) -> Iterator[Stack]:
    from sqlalchemy import text

    from app.accounts import keys
    from app.db import transaction
    from app.redis import client
    from app.tables import metadata

    with transaction() as session:
        session.execute(text(f"TRUNCATE {', '.join(metadata.tables)} CASCADE"))
        key = keys.create_key(session, keys.create_account(session, "alice"), "test")[1]
    client().flushdb()
    environment = {
        **services,
        "LONGHAUL_WEBHOOK_ALLOWED_HOSTS": '["127.0.0.1"]',
        "LONGHAUL_WEBHOOK_TIMEOUT_SECONDS": str(TIMEOUT_SECONDS),
    }
    with running(environment, key, tmp_path_factory.mktemp("webhooks")) as started:
        for name in ("background", "dispatcher", "gpu", "webhooks"):
            started.start(name)
        started.start_web()
        started.wait_for_workers("faulty", 1)
        yield started


@pytest.fixture(scope="module")
def secret(stack: Stack) -> str:
    """The account's, for every `webhook_url`."""
    return stack.http.post("/v1/webhooks/secret/rotate").json()["secret"]


def unwrap(got: Any, secret: str) -> Any:
    with OpenAI(api_key="none", webhook_secret=secret) as sdk:
        return sdk.webhooks.unwrap(got.body.decode(), got.headers)


def subjects(receiver: Receiver) -> set[str]:
    return {got.json["data"]["id"] for got in list(receiver.received)}


def deliveries(stack: Stack, **query: str) -> list[dict[str, Any]]:
    return stack.http.get("/v1/webhooks/deliveries", params={"limit": 100, **query}).json()["data"]


def test_jobs_and_responses_are_told_of_in_events_that_the_official_sdk_unwraps(stack, secret):
    with Receiver() as registered, Receiver() as named:
        body = {"url": registered.url(), "events": ["job.in_progress", "job.completed", "response.*"]}
        endpoint = stack.http.post("/v1/webhooks/endpoints", json=body).json()
        job_id = stack.submit(**PROMPT, webhook_url=named.url("/job"))
        with OpenAI(base_url=f"{stack.url}/v1", api_key=stack.key, max_retries=0) as sdk:
            asked = {"background": True, "extra_body": {"webhook_url": named.url("/response")}}
            response_id = sdk.responses.create(**PROMPT, **asked).id
        eventually(lambda: len(named.received) == 2 and len(registered.received) == 4, 60, stack.tail())
        stack.http.delete(f"/v1/webhooks/endpoints/{endpoint['id']}")

    told = {got.path: unwrap(got, secret) for got in named.received}
    assert (told["/job"].type, told["/job"].data.id) == ("job.completed", job_id)
    assert isinstance(told["/response"], ResponseCompletedWebhookEvent)
    assert told["/response"].data.id == response_id
    events = [unwrap(got, endpoint["secret"]) for got in registered.received]
    assert {(event.type, event.data.id) for event in events} == {
        ("job.in_progress", job_id),
        ("job.completed", job_id),
        ("job.in_progress", f"job_{response_id.removeprefix('resp_')}"),
        ("response.completed", response_id),
    }
    for got, event in zip(registered.received, events, strict=True):
        assert got.headers["webhook-id"] == event.id
        assert Webhook(endpoint["secret"]).verify(got.body, got.headers)
        with pytest.raises(InvalidWebhookSignatureError):
            unwrap(got, secret)


def test_a_receiver_that_is_down_costs_the_job_nothing_and_is_told_when_it_is_back(stack, secret):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    job_id = stack.submit(**PROMPT, webhook_url=f"http://127.0.0.1:{port}/hook")
    assert stack.ended(job_id)["status"] == "completed"
    [failed] = eventually(
        lambda: [one for one in deliveries(stack, subject=job_id) if one["attempts"]], 30, stack.tail()
    )
    assert failed["state"] == "pending"
    with Receiver(port=port) as receiver:
        eventually(lambda: deliveries(stack, subject=job_id)[0]["state"] == "delivered", 30, stack.tail())
        [got] = receiver.received
    assert got.headers["webhook-id"] == failed["event"]["id"]
    assert unwrap(got, secret).data.id == job_id
    attempts = stack.http.get(f"/v1/webhooks/deliveries/{failed['id']}").json()["log"]
    assert [attempt["status_code"] for attempt in attempts][-1] == 200
    assert "connection failed" in attempts[0]["error"]


def test_a_sender_killed_in_the_middle_of_deliveries_loses_none(stack, secret):
    with Receiver() as receiver:
        receiver.usual = hang
        jobs = [stack.submit(**PROMPT, webhook_url=receiver.url(f"/{number}")) for number in range(12)]
        _kill_in_the_middle(stack, receiver, 1)
        receiver.usual = answer(200)
        _kill_in_the_middle(stack, receiver, 3)
        for job_id in jobs:
            stack.ended(job_id)
        eventually(lambda: _all_delivered(stack, jobs), 60, stack.tail())
        assert subjects(receiver) == set(jobs)
    ids: dict[str, set[str]] = {}
    for got in receiver.received:
        ids.setdefault(unwrap(got, secret).data.id, set()).add(got.headers["webhook-id"])
    assert all(len(found) == 1 for found in ids.values())


def _kill_in_the_middle(stack: Stack, receiver: Receiver, more: int) -> None:
    """Once so many more attempts have reached the receiver."""
    reached = receiver.connections
    eventually(lambda: receiver.connections >= reached + more, 30, stack.tail())
    stack.kill("webhooks")
    stack.start("webhooks")


def _all_delivered(stack: Stack, jobs: list[str]) -> bool:
    found = [one for one in deliveries(stack) if one["event"]["subject"] in jobs]
    return sorted(one["event"]["subject"] for one in found) == sorted(jobs) and all(
        one["state"] == "delivered" for one in found
    )
