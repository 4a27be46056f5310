"""`/v1/messages/batches`: Anthropic's own SDK makes, follows, cancels, reads and deletes batches here."""

import threading
from datetime import timedelta

import anthropic
import httpx
import orjson
import psutil
import pytest
from anthropic import Anthropic
from sqlalchemy import func, select, update

from app.api.batches import messages as message_batches
from app.batches import messages
from app.batches.tables import Batch, BatchFault
from app.db import transaction
from app.files.tables import StoredFile
from app.jobs import lifecycle
from app.jobs.lifecycle import Prefill
from app.jobs.tables import Job, JobEvent
from config.settings import settings
from tests.integration.api.batching import Batches
from tests.integration.api.conftest import running_gunicorn

URL = "/v1/messages/batches"
MEGABYTE = 1 << 20


def asking(custom_id, **params):
    said = {"model": "faulty", "max_tokens": 16, "messages": [{"role": "user", "content": "Say something."}]}
    return {"custom_id": custom_id, "params": {**said, **params}}


@pytest.fixture
def batches(alice):
    return Batches(alice)


@pytest.fixture
def sdk(threaded_server, alice):
    made = Anthropic(base_url=f"http://{threaded_server}", api_key=alice.secret, max_retries=0)
    yield made.messages.batches
    made.close()


@pytest.fixture
def create(sdk, batches):
    """`create("a", "b")` gives a batch of requests with those names, whose lines were checked."""

    def make(*requests):
        made = sdk.create(requests=[asking(one) if isinstance(one, str) else one for one in requests])
        batches.validate(inner(made))
        return made

    return make


@pytest.fixture
def limited(monkeypatch):
    def change(**values):
        changed = settings().model_copy(update=values)
        for module in (message_batches, messages):
            monkeypatch.setattr(module, "settings", lambda: changed)

    return change


def inner(batch):
    """The same batch's id on our own surface."""
    return batch.id.replace("msgbatch_", "batch_")


def counts(batch):
    return {name: count for name, count in batch.request_counts.to_dict().items() if count}


def settle(worker, verb, *details):
    worker.store()
    with transaction() as session:
        assert verb(session, worker.job.id, worker.job.lease_id, Prefill(7, 0, 0.0), *details)


def results(sdk, batch):
    return {one.custom_id: one.result for one in sdk.results(batch.id)}


def test_a_batch_runs_and_its_results_are_messages(sdk, create, batches):
    made = create("first", asking("second", max_tokens=99_999), "third")
    assert made.id.startswith("msgbatch_")
    assert (made.processing_status, counts(made)) == ("in_progress", {"processing": 3})
    assert made.expires_at - made.created_at == timedelta(hours=24)
    assert made.results_url is None
    batches.answer(inner(made), 1, "Hello.")
    assert counts(sdk.retrieve(made.id)) == {"processing": 1, "succeeded": 1, "errored": 1}
    worker = batches.work(inner(made), 3)
    settle(worker, lifecycle.fail, "engine_error", "It broke.")
    batches.run(inner(made))
    ended = sdk.retrieve(made.id)
    assert (ended.processing_status, counts(ended)) == ("ended", {"succeeded": 1, "errored": 2})
    assert ended.ended_at >= ended.created_at
    found = results(sdk, made)
    assert list(found) == ["first", "second", "third"]
    assert found["first"].message.content[0].text == "Hello."
    assert found["first"].message.usage.service_tier == "batch"
    assert found["second"].error.error.type == "invalid_request_error"
    assert "'max_tokens'" in found["second"].error.error.message
    assert (found["third"].error.error.type, found["third"].error.error.message) == ("api_error", "It broke.")


def test_a_batch_of_nothing_that_can_be_run_ends_with_every_error(sdk, create):
    made = create(asking("a", max_tokens=0), asking("b", model="unknown"))
    ended = sdk.retrieve(made.id)
    assert (ended.processing_status, counts(ended)) == ("ended", {"errored": 2})
    found = results(sdk, made)
    assert {result.type for result in found.values()} == {"errored"}
    assert "unknown" in found["b"].error.error.message


def test_a_cancelled_batch_keeps_what_its_requests_had_said(sdk, create, batches):
    made = create("a", "b", "c")
    batches.answer(inner(made), 1)
    worker = batches.work(inner(made), 2)
    worker.say("Half an ")
    cancelling = sdk.cancel(made.id)
    assert (cancelling.processing_status, cancelling.results_url) == ("canceling", None)
    assert cancelling.cancel_initiated_at
    settle(worker, lifecycle.cancel)
    batches.run(inner(made))
    batches.run(inner(made))
    ended = sdk.retrieve(made.id)
    assert (ended.processing_status, counts(ended)) == ("ended", {"succeeded": 1, "canceled": 2})
    found = results(sdk, made)
    assert [result.type for result in found.values()] == ["succeeded", "canceled", "canceled"]
    assert found["b"].to_dict()["message"]["content"][0]["text"] == "Half an "
    assert found["c"].to_dict() == {"type": "canceled"}


def test_a_batch_is_cancelled_before_its_requests_are_looked_at(sdk):
    made = sdk.create(requests=[asking("a"), asking("b")])
    ended = sdk.cancel(made.id)
    assert (ended.processing_status, counts(ended)) == ("ended", {"canceled": 2})
    assert ended.cancel_initiated_at
    assert {name: result.type for name, result in results(sdk, made).items()} == {
        "a": "canceled",
        "b": "canceled",
    }
    assert sdk.cancel(made.id) == ended


def test_what_the_window_ended_is_expired(sdk, create, batches):
    made = create("a")
    with transaction() as session:
        session.execute(update(Job).values(status="expired", finished_at=func.now()))
    batches.run(inner(made))
    assert counts(sdk.retrieve(made.id)) == {"expired": 1}
    assert results(sdk, made)["a"].type == "expired"


def test_batches_are_listed_in_pages_both_ways(sdk, batches, mallory):
    made = [sdk.create(requests=[asking("a")]).id for _ in range(5)]
    batches.create(input_file_id=batches.upload(b"{}"))
    assert [batch.id for batch in sdk.list(limit=2)] == made[::-1]
    page = sdk.list(limit=2, before_id=made[0])
    assert ([batch.id for batch in page.data], page.has_more) == ([made[2], made[1]], True)
    assert [batch.id for batch in sdk.list(limit=3, before_id=made[1]).data] == made[:1:-1]
    assert mallory.get(URL).json == {"data": [], "has_more": False, "first_id": None, "last_id": None}


def test_a_deleted_batch_leaves_nothing(sdk, create, batches, alice):
    made = create("a", asking("b", max_tokens=0))
    with pytest.raises(anthropic.ConflictError):
        sdk.delete(made.id)
    batches.answer(inner(made), 1)
    batches.run(inner(made))
    assert sdk.delete(made.id).id == made.id
    with pytest.raises(anthropic.NotFoundError):
        sdk.retrieve(made.id)
    with transaction() as session:
        for table in (Batch, BatchFault, Job, JobEvent, StoredFile):
            assert session.scalar(select(func.count()).select_from(table)) == 0, table


def test_results_are_there_once_the_batch_has_ended_and_as_long_as_they_are_kept(sdk, alice):
    made = sdk.create(requests=[asking("a")])
    with pytest.raises(anthropic.AnthropicError, match="results_url"):
        sdk.results(made.id)
    assert alice.get(f"{URL}/{made.id}/results").status_code == 409
    sdk.cancel(made.id)
    with transaction() as session:
        session.execute(update(Batch).values(created_at=func.now() - timedelta(days=30)))
    archived = sdk.retrieve(made.id)
    assert (archived.results_url, archived.processing_status) == (None, "ended")
    assert archived.archived_at - archived.created_at == timedelta(days=29)
    assert alice.get(f"{URL}/{made.id}/results").status_code == 404


@pytest.mark.parametrize(
    ("requests", "where"),
    [
        ([], "at least one request"),
        ([asking("a"), asking("a")], "requests.1.custom_id"),
        ([asking("a b")], "requests.0.custom_id"),
        ([asking("x" * 65)], "requests.0.custom_id"),
        ([{"custom_id": "a"}], "requests.0.params"),
        ([asking("a"), {**asking("b"), "model": "m"}], "requests.1.model"),
        ([asking("a", metadata={"a": "\x00"})], "requests.0.params.metadata.a"),
        ([asking("a")] * 4, "3 requests"),
        ([asking("a", system="x" * 3_000)], "larger"),
    ],
)
def test_a_body_that_is_no_batch_is_refused_with_its_place(sdk, limited, requests, where):
    limited(max_batch_lines=3, max_line_bytes=2_000)
    if where == "3 requests":
        requests = [asking(str(number)) for number in range(4)]
    with pytest.raises(anthropic.BadRequestError) as refusal:
        sdk.create(requests=requests)
    assert refusal.value.type == "invalid_request_error"
    assert where in refusal.value.message
    with transaction() as session:
        assert session.scalar(select(func.count()).select_from(StoredFile)) == 0


def test_errors_are_anthropics(alice, caller, limited, threaded_server):
    answer = alice.get(f"{URL}/msgbatch_0")
    assert answer.status_code == 404
    assert answer.json["type"] == "error"
    assert answer.json["error"]["type"] == "not_found_error"
    assert answer.json["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]
    assert caller(None).get(URL).json["error"]["type"] == "authentication_error"
    assert alice.get(f"{URL}?limit=0").json["error"]["type"] == "invalid_request_error"
    assert alice.get(f"{URL}?after_id=a&before_id=b").status_code == 400
    answer = alice.post(URL, data=b"no", content_type="application/json")
    assert (answer.status_code, answer.json["error"]["type"]) == (400, "invalid_request_error")
    limited(max_message_batch_bytes=100)
    answer = alice.post(URL, {"requests": [asking("a")]})
    assert (answer.status_code, answer.json["error"]["type"]) == (413, "request_too_large")


def test_a_key_may_come_as_anthropics_clients_send_it(caller, alice):
    nobody = caller(None)
    assert nobody.get(URL, headers={"x-api-key": alice.secret}).status_code == 200
    assert nobody.get("/v1/models", headers={"x-api-key": alice.secret}).status_code == 200
    assert nobody.get(URL, headers={"x-api-key": "lh_wrong"}).status_code == 401


def test_the_same_requests_with_the_same_key_give_the_same_batch(alice):
    headers = {"Idempotency-Key": "k"}
    first = alice.post(URL, {"requests": [asking("a")]}, headers=headers)
    again = alice.post(URL, {"requests": [asking("a")]}, headers=headers)
    assert (again.status_code, again.json["id"]) == (200, first.json["id"])
    assert again.headers["Idempotency-Replayed"] == "true"
    other = alice.post(URL, {"requests": [asking("b")]}, headers=headers)
    assert (other.status_code, other.json["error"]["type"]) == (409, "invalid_request_error")
    with transaction() as session:
        assert session.scalar(select(func.count()).select_from(StoredFile)) == 1


@pytest.mark.slow
def test_a_large_batch_passes_through_in_pieces_while_others_are_answered(services, alice):
    said = [{"role": "user", "content": 'Say "it" {now}. ' * 200}]
    body = orjson.dumps({"requests": [asking(str(number), messages=said) for number in range(8_000)]})
    posted = []
    with running_gunicorn(services) as (server, pid), httpx.Client(trust_env=False, timeout=120) as client:
        root = f"http://{server}"
        headers = {"x-api-key": alice.secret}
        client.get(f"{root}{URL}", headers=headers)
        idle = memory(pid)
        upload = threading.Thread(
            target=lambda: posted.append(httpx.post(f"{root}{URL}", content=body, headers=headers, timeout=120))
        )
        upload.start()
        peak = answers = 0
        while upload.is_alive():
            answers += client.get(f"{root}/livez").is_success
            peak = max(peak, memory(pid))
    assert posted[0].json()["request_counts"]["processing"] == 8_000
    assert answers >= 5
    assert peak - idle < 50 * MEGABYTE < 2 * len(body)


def memory(pid):
    master = psutil.Process(pid)
    return sum(process.memory_info().rss for process in [master, *master.children(recursive=True)])


def test_another_accounts_batch_is_not_found(sdk, mallory):
    made = sdk.create(requests=[asking("a")]).id
    for method, path in (("GET", ""), ("GET", "/results"), ("POST", "/cancel"), ("DELETE", "")):
        assert mallory(method, f"{URL}/{made}{path}").status_code == 404


def test_a_batch_of_messages_can_come_from_a_file_too(sdk, batches):
    line = {"custom_id": "a", "method": "POST", "url": "/v1/messages", "body": asking("a")["params"]}
    made = batches.validated(orjson.dumps(line), b"no json", endpoint="/v1/messages", on_invalid="skip")
    batches.answer(made["id"], 1, "Hello.")
    batches.run(made["id"])
    batch = sdk.retrieve(made["id"].replace("batch_", "msgbatch_"))
    assert counts(batch) == {"succeeded": 1, "errored": 1}
    found = results(sdk, batch)
    assert found["a"].message.content[0].text == "Hello."
    output = batches.caller.get(f"/v1/files/{batches.show(made['id'])['output_file_id']}/content").data
    assert orjson.loads(output)["response"]["body"]["type"] == "message"
