"""From the logs to deliveries: who is told of what, once, and in which words."""

import threading
from datetime import timedelta

import orjson
import pytest
from openai import OpenAI
from sqlalchemy import func, select, update

from app import clock
from app.batches.lifecycle import advance, note_progress
from app.batches.states import BatchStatus
from app.batches.tables import Batch
from app.db import transaction
from app.ids import new_id
from app.jobs import rescue
from app.jobs.tables import Job, JobEvent
from app.openai.ids import resp_id
from app.webhooks import endpoints, secrets, signing
from app.webhooks.fanout import fan_out
from app.webhooks.tables import Delivery, DeliveryState, Endpoint, Message, Origin
from config.queues import Window
from tests.eventually import eventually
from tests.integration.webhooks.conftest import CALLBACK, URL, end, fan, told


@pytest.fixture
def make_batch(make_account):
    """`make_batch(**values)`: a batch of three lines that runs."""

    def make(**values):
        batch = Batch(
            id=new_id("batch"),
            account_id=make_account("alice").id,
            status=BatchStatus.VALIDATING,
            endpoint="/v1/jobs",
            input_file_id=new_id("file"),
            input_digest="0",
            completion_window=Window.ONE_DAY,
            price_factor=1,
            request_hash=b"",
            **values,
        )
        with transaction() as session:
            session.add(batch)
            session.flush()
            advance(session, batch.id, [BatchStatus.VALIDATING], BatchStatus.IN_PROGRESS, {"total": 3})
        return batch

    return make


def types():
    return [message.type for _, message in told()]


def body_of(message):
    return orjson.loads(message.body)


def test_a_jobs_end_is_told_to_every_endpoint_that_wants_it(make_endpoint, make_told):
    wanted = [make_endpoint("job.completed"), make_endpoint("job.*"), make_endpoint()]
    make_endpoint("job.failed")
    make_endpoint("job.completed", account="mallory")
    job = make_told()
    end(job)
    fan()
    found = [(d, m) for d, m in told() if m.type == "job.completed"]
    assert {delivery.endpoint_id for delivery, _ in found} == {endpoint.id for endpoint in wanted}
    assert {message.id for _, message in found} == {found[0][1].id}
    assert {(m.subject, m.account_id) for _, m in found} == {(job.id, job.account_id)}
    assert {d.state for d, _ in found} == {DeliveryState.PENDING}


@pytest.mark.parametrize("verb", ["complete", "stop_early", "fail", "cancel"])
def test_a_body_is_thin_and_says_how_the_job_ended(make_endpoint, make_told, verb):
    make_endpoint()
    job = make_told()
    end(job, verb)
    fan()
    [(_, message)] = told()
    body = body_of(message)
    with transaction() as session:
        ended = session.get(Job, job.id)
    assert (body["id"], body["object"], body["type"]) == (message.id, "event", ended.status.event_type)
    assert body["created_at"] == int(ended.finished_at.timestamp())
    data = body["data"]
    assert (data["id"], data["object"], data["status"]) == (job.id, "job", ended.status)
    assert data["sequence"] == message.sequence == 3
    assert data["usage"]["input_tokens"] == 3
    assert data["url"].endswith(f"/v1/jobs/{job.id}")
    assert data.get("error") == ({"code": "engine_error", "message": "It broke."} if verb == "fail" else None)


@pytest.mark.parametrize(
    ("verb", "event_type"),
    [
        ("complete", "response.completed"),
        ("stop_early", "response.incomplete"),
        ("fail", "response.failed"),
        ("cancel", "response.cancelled"),
    ],
)
def test_a_response_ends_under_openais_type_and_its_own_client_unwraps_it(
    make_endpoint, make_told, verb, event_type
):
    endpoint = make_endpoint("*")
    job = make_told(surface="responses")
    end(job, verb)
    fan()
    *earlier, (_, message) = told()
    assert [m.type for _, m in earlier] == ["job.queued", "job.in_progress"]
    assert message.type == event_type
    with transaction() as session:
        keys = secrets.signing_secrets(session, endpoint)
    headers = signing.headers(message.id, message.body.encode(), keys, clock.now())
    event = OpenAI(api_key="none").webhooks.unwrap(message.body, headers, secret=keys[0])
    assert (event.id, event.type, event.data.id) == (message.id, event_type, resp_id(job.id))
    assert type(event).__name__.lower().startswith(event_type.replace(".", ""))


def test_a_response_that_never_started_has_failed(make_endpoint, make_told):
    make_endpoint("response.failed")
    make_told(surface="responses", expires_at=func.now() - timedelta(seconds=1))
    with transaction() as session:
        rescue.expire(session, 10)
    fan()
    [(_, message)] = told()
    data = body_of(message)["data"]
    assert (message.type, data["status"], data["error"]["code"]) == (
        "response.failed",
        "failed",
        "server_error",
    )


def test_who_wants_jobs_hears_of_a_response_as_a_job_and_nobody_hears_twice(make_endpoint, make_told):
    as_job, as_both = make_endpoint("job.completed"), make_endpoint("job.completed", "response.completed")
    job = make_told(surface="responses")
    end(job)
    fan()
    assert {(d.endpoint_id, m.type, m.subject) for d, m in told()} == {
        (as_job.id, "job.completed", job.id),
        (as_both.id, "response.completed", resp_id(job.id)),
    }


def test_later_events_of_a_job_have_higher_sequences(make_endpoint, make_told):
    make_endpoint("*")
    end(make_told())
    fan()
    assert types() == ["job.queued", "job.in_progress", "job.completed"]
    sequences = [message.sequence for _, message in told()]
    assert sequences == sorted(set(sequences))


def test_an_account_that_listens_to_nothing_writes_nothing_due(make_account, make_told):
    make_account()
    end(make_told())
    with transaction() as session:
        assert session.scalar(select(func.count()).where(JobEvent.is_due)) == 0
    assert fan() == 0


def test_a_webhook_url_is_told_of_its_jobs_end_alone(make_account_secret, make_told):
    make_account_secret()
    jobs = [make_told(webhook_url=CALLBACK), make_told(webhook_url=CALLBACK), make_told()]
    for job in jobs:
        end(job)
    assert fan() == 2
    assert [message.subject for _, message in told()] == [job.id for job in jobs[:2]]
    with transaction() as session:
        [endpoint] = session.scalars(select(Endpoint))
        assert (endpoint.origin, endpoint.url) == (Origin.REQUEST, CALLBACK)
        assert len(secrets.signing_secrets(session, endpoint)) == 1


def test_a_response_tells_its_webhook_url_in_openais_words(make_told):
    end(make_told(webhook_url=CALLBACK, surface="responses"))
    fan()
    assert types() == ["response.completed"]


def test_a_batchs_line_is_told_of_only_where_it_names_a_url(make_endpoint, make_told, make_batch):
    make_endpoint("*")
    batch = make_batch()
    fan()
    lines = {"batch_id": batch.id, "custom_id": "first"}
    end(make_told(line=1, **lines))
    named = make_told(line=2, webhook_url=CALLBACK, **lines)
    end(named)
    fan()
    # What was queued before the column was set is of the test's making.
    found = [message for _, message in told() if message.type.startswith("job.") and message.sequence > 1]
    assert [message.subject for message in found] == [named.id]
    assert body_of(found[0])["data"]["batch"] == {"id": batch.id, "line": 2, "custom_id": "first"}


def test_a_batch_is_told_of_on_its_way_and_at_its_end(make_endpoint, make_batch):
    make_endpoint("batch.*")
    batch = make_batch(webhook_url=CALLBACK)
    counts = {"total": 3, "completed": 1, "failed": 0}
    values = {
        "completed": 2,
        "failed": 1,
        "input_tokens": 5,
        "output_tokens": 7,
        "output_file_id": new_id("file"),
    }
    with transaction() as session:
        note_progress(session, batch.id, {"request_counts": counts, "running": 2})
        advance(session, batch.id, [BatchStatus.IN_PROGRESS], BatchStatus.COMPLETED, values)
    fan()
    by_type = {message.type: body_of(message)["data"] for _, message in told()}
    assert list(by_type) == ["batch.in_progress", "batch.progress", "batch.completed"]
    progress, completed = by_type["batch.progress"], by_type["batch.completed"]
    assert (progress["status"], progress["request_counts"], progress["running"]) == ("in_progress", counts, 2)
    assert (completed["id"], completed["object"], completed["status"]) == (batch.id, "batch", "completed")
    assert completed["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
    assert completed["usage"]["total_tokens"] == 12
    assert completed["output_file_id"] == values["output_file_id"]
    assert [d["sequence"] for d in by_type.values()] == [1, 2, 3]
    with transaction() as session:
        at_url = select(Message.type).join(Delivery).join(Endpoint).where(Endpoint.url == CALLBACK)
        assert session.scalars(at_url).all() == ["batch.completed"]


def test_a_failed_batch_says_why(make_endpoint, make_batch):
    make_endpoint("batch.failed")
    batch = make_batch()
    values = {"error_code": "duplicate_custom_id", "error_message": "Line 3 repeats line 1."}
    with transaction() as session:
        advance(session, batch.id, [BatchStatus.IN_PROGRESS], BatchStatus.FAILED, values)
    fan()
    [(_, message)] = told()
    assert body_of(message)["data"]["error"] == {
        "code": "duplicate_custom_id",
        "message": "Line 3 repeats line 1.",
    }


def test_no_body_reaches_20_kilobytes_or_breaks_a_line(make_endpoint, make_told, make_batch):
    make_endpoint("job.failed")
    nasty = "🦆\u2028\u2029\u0085" * 20_000
    job = make_told(
        webhook_url=CALLBACK, surface="jobs", batch_id=make_batch().id, line=1, custom_id="🦆" * 512
    )
    end(job, "fail")
    with transaction() as session:
        data = {"attempt": 1, "error": {"code": "engine_error", "message": nasty}}
        session.execute(update(JobEvent).where(JobEvent.type == "job.failed").values(data=data))
    fan()
    [(_, message)] = told()
    assert len(message.body.encode()) < 20_000
    assert len(message.body.splitlines()) == 1
    assert body_of(message)["data"]["error"]["message"].startswith("🦆\u2028\u2029\u0085🦆")


def test_what_was_taken_is_not_taken_again(make_endpoint, make_told):
    make_endpoint()
    end(make_told())
    assert [fan(), fan()] == [1, 0]
    assert len(told()) == 1


def test_two_processes_never_take_the_same(make_endpoint, make_told):
    make_endpoint()
    for _ in range(4):
        end(make_told())
    with transaction() as first, transaction() as second:
        assert (fan_out(first, 3), fan_out(second, 3)) == (3, 1)
    subjects = [message.subject for _, message in told()]
    assert len(set(subjects)) == len(subjects) == 4


def test_what_a_process_took_that_died_is_due_again(make_endpoint, make_told):
    make_endpoint()
    end(make_told())
    with transaction() as session:
        assert fan_out(session, 10) == 1
        session.rollback()
    assert told() == []
    assert fan() == 1
    assert len(told()) == 1


def test_two_processes_make_one_endpoint_of_a_url(make_told):
    for _ in range(2):
        end(make_told(webhook_url=CALLBACK))
    with transaction() as first:
        fan_out(first, 1)
        other = threading.Thread(target=fan)
        other.start()
        # It waits for the endpoint that is not committed yet.
        eventually(_somebody_waits)
    other.join(10)
    with transaction() as session:
        assert session.scalar(select(func.count()).select_from(Endpoint)) == 1
    assert len(told()) == 2


def test_a_disabled_endpoint_is_told_nothing_and_its_log_says_so(make_endpoint, make_told):
    endpoint = make_endpoint()
    with transaction() as session:
        endpoints.disable(session, endpoint, "410")
    end(make_told())
    fan()
    [(delivery, _)] = told()
    assert delivery.state is DeliveryState.DISCARDED
    assert delivery.ended_at


def test_who_disables_an_endpoint_finds_what_a_fan_out_is_adding(make_endpoint, make_told):
    endpoint = make_endpoint()
    end(make_told())

    def disable():
        with transaction() as session:
            endpoints.disable(session, endpoint, "410")

    with transaction() as session:
        fan_out(session, 10)
        other = threading.Thread(target=disable)
        other.start()
        eventually(_somebody_waits)
    other.join(10)
    assert [delivery.state for delivery, _ in told()] == [DeliveryState.DISCARDED]


def _somebody_waits():
    with transaction() as session:
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        return session.connection().exec_driver_sql(waiting).scalar_one()


def test_a_url_that_was_disabled_is_tried_again_for_who_names_it_later(make_told):
    before = make_told(webhook_url=CALLBACK)
    end(make_told(webhook_url=CALLBACK))
    fan()
    with transaction() as session:
        endpoint = session.scalar(select(Endpoint))
        endpoints.disable(session, endpoint, "410")
    after = make_told(webhook_url=CALLBACK)
    for job in (before, after):
        end(job)
        fan()
    assert [delivery.state for delivery, _ in told()] == ["discarded", "discarded", "pending"]
    with transaction() as session:
        assert session.scalar(select(Endpoint.disabled_at)) is None


def test_registered_endpoints_and_a_webhook_url_get_the_same_event(make_endpoint, make_told):
    make_endpoint(url=URL)
    end(make_told(webhook_url=CALLBACK))
    fan()
    assert len({message.id for _, message in told()}) == 1
    assert len(told()) == 2
