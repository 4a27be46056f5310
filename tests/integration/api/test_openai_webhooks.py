"""`client.webhooks`, unmodified: endpoints managed as OpenAI's are."""

import threading

import pytest
from openai import APIStatusError, BadRequestError, ConflictError, NotFoundError, OpenAI
from sqlalchemy import func, select, update

from app import clock
from app.api.calls import webhook_endpoints
from app.db import transaction
from app.webhooks import endpoints, secrets, signing
from app.webhooks.tables import Attempt, Delivery, DeliveryState, Message
from config.settings import settings
from tests.eventually import eventually

URL = "https://93.184.216.34/hook"  # of a public network; nothing here is sent


@pytest.fixture
def client(threaded_server, alice):
    with OpenAI(base_url=f"http://{threaded_server}/v1", api_key=alice.secret) as made:
        yield made


@pytest.fixture
def endpoint(client):
    return client.webhooks.create(url=URL, name="Ours", event_types=["response.completed", "batch.failed"])


def answer_once(code, error=None):
    """Play a sender: the next delivery gets one attempt."""

    def send():
        with transaction() as session:
            pending = select(Delivery.id).where(Delivery.state == DeliveryState.PENDING)
            delivery_id = session.scalar(pending)
            if delivery_id is None:
                return False
            ended = {"state": DeliveryState.DELIVERED, "ended_at": func.now()}
            session.execute(update(Delivery).where(Delivery.id == delivery_id).values(**ended))
            made = {"duration_ms": 1, "status_code": code, "error": error}
            session.add(Attempt(delivery_id=delivery_id, number=1, **made))
            return True

    sender = threading.Thread(target=eventually, args=(send,))
    sender.start()
    return sender


def test_an_endpoint_is_created_found_changed_and_deleted(client, endpoint, alice):
    assert endpoint.signing_secret.startswith("whsec_")
    assert endpoint.signing_secret_hint.endswith(endpoint.signing_secret[-4:])
    assert endpoint.event_types == ["response.completed", "batch.failed"]
    found = client.webhooks.retrieve(endpoint.id)
    assert (found.name, found.url, found.object) == ("Ours", URL, "webhook_endpoint")
    assert not hasattr(found, "signing_secret")
    changed = client.webhooks.update(endpoint.id, name="Theirs", event_types=["batch.failed"])
    assert (changed.name, changed.url, changed.event_types) == ("Theirs", URL, ["batch.failed"])
    assert alice.get(f"/v1/webhooks/endpoints/{endpoint.id}").json["description"] == "Theirs"
    assert client.webhooks.delete(endpoint.id).deleted
    with pytest.raises(NotFoundError):
        client.webhooks.retrieve(endpoint.id)


def test_a_list_goes_from_page_to_page(client):
    made = [client.webhooks.create(url=URL, name=str(n), event_types=["batch.failed"]).id for n in range(5)]
    assert [one.id for one in client.webhooks.list(limit=2)] == made[::-1]


def test_the_types_are_ours_and_another_is_refused_by_name(client):
    known = client.webhooks.event_types.list().data
    assert {"response.completed", "batch.expired", "job.failed"} < set(known)
    client.webhooks.create(url=URL, name="All", event_types=known)
    with pytest.raises(BadRequestError) as refusal:
        client.webhooks.create(url=URL, name="Ours", event_types=["eval.run.failed"])
    assert (refusal.value.code, refusal.value.param) == ("webhook_event_type_unknown", "event_types")
    with pytest.raises(BadRequestError) as refusal:
        client.webhooks.create(url="https://10.0.0.1/", name="Ours", event_types=["batch.failed"])
    assert (refusal.value.code, refusal.value.param) == ("webhook_url_refused", "url")


@pytest.mark.parametrize("keep", [True, False])
def test_a_rotation_keeps_the_old_secret_only_where_it_is_asked_to(client, endpoint, keep):
    rotated = client.webhooks.rotate_secret(endpoint.id, keep_old_secret_active_for_24_hours=keep)
    assert rotated.signing_secret != endpoint.signing_secret
    with transaction() as session:
        keys = secrets.signing_secrets(session, session.get(endpoints.Endpoint, endpoint.id))
    assert keys == [rotated.signing_secret, *([endpoint.signing_secret] if keep else [])]


def test_a_test_event_waits_for_what_the_endpoint_answers(client, endpoint):
    sender = answer_once(503)
    result = client.webhooks.test(endpoint.id, event_type="response.completed")
    sender.join()
    assert (result.status_code, result.webhook_endpoint_id) == (503, endpoint.id)
    with transaction() as session:
        message = session.scalar(select(Message))
    headers = signing.headers(message.id, message.body.encode(), [endpoint.signing_secret], clock.now())
    event = client.webhooks.unwrap(message.body, headers, secret=endpoint.signing_secret)
    assert event.type == "response.completed"
    assert event.data.id.startswith("resp_")


def test_a_test_event_without_an_answer_says_why(client, endpoint, monkeypatch):
    sender = answer_once(None, "connection refused")
    with pytest.raises(BadRequestError, match="connection refused"):
        client.webhooks.test(endpoint.id, event_type="batch.failed")
    sender.join()
    # No sender runs.
    hasty = settings().model_copy(update={"webhook_timeout_seconds": 0.1})
    monkeypatch.setattr(webhook_endpoints, "settings", lambda: hasty)
    with pytest.raises(APIStatusError, match="no attempt yet"):
        client.webhooks.test(endpoint.id, event_type="batch.failed")


def test_a_test_of_an_unknown_type_or_a_disabled_endpoint_is_refused(client, endpoint, alice):
    with pytest.raises(BadRequestError) as refusal:
        client.webhooks.test(endpoint.id, event_type="video.failed")
    assert refusal.value.param == "event_type"
    alice.post(f"/v1/webhooks/endpoints/{endpoint.id}", {"enabled": False})
    with pytest.raises(ConflictError):
        client.webhooks.test(endpoint.id, event_type="batch.failed")


def test_another_accounts_endpoint_is_not_found(endpoint, mallory):
    path = f"/v1/webhook_endpoints/{endpoint.id}"
    assert mallory.get(path).status_code == mallory("DELETE", path).status_code == 404
    assert mallory.post(path, {"name": "Mine"}).status_code == 404
    assert mallory.post(f"{path}/rotate_secret").status_code == 404
    assert mallory.post(f"{path}/test", {"event_type": "batch.failed"}).status_code == 404
    assert mallory.get(f"/v1/webhook_endpoints?after={endpoint.id}").status_code == 404
