"""`/v1/webhooks`: endpoints, secrets that are shown once, the delivery log, sending again."""

from datetime import timedelta

import pytest
from openai import OpenAI
from sqlalchemy import func, update

from app import clock
from app.db import transaction
from app.ids import is_id
from app.webhooks import endpoints, secrets, signing
from app.webhooks.fanout import fan_out
from app.webhooks.tables import Attempt, Delivery, DeliveryState, Message
from config.settings import settings

ENDPOINTS = "/v1/webhooks/endpoints"
DELIVERIES = "/v1/webhooks/deliveries"
SECRET = "/v1/webhooks/secret"
# Of a public network; nothing here is sent.
URL = "https://93.184.216.1/hook"


@pytest.fixture
def register(alice):
    """`register(*events, caller=alice, **body)` gives the endpoint with its secret."""

    def make(*events, caller=alice, **body):
        wanted = {"url": URL, **({"events": list(events)} if events else {}), **body}
        answer = caller.post(ENDPOINTS, wanted)
        assert answer.status_code == 201, answer.json
        return answer.json

    return make


@pytest.fixture
def end_jobs(alice, work):
    """`end_jobs(n)` runs jobs of alice's to their end; it returns their ids."""

    def run(count=1):
        made = [alice.submit().json["id"] for _ in range(count)]
        for job_id in made:
            work(job_id).complete()
        with transaction() as session:
            fan_out(session, 100)
        return made

    return run


def settle(state, *, code=500):
    """What a sender leaves behind: every pending delivery ended as `state` after one attempt."""
    with transaction() as session:
        ended = session.scalars(
            update(Delivery)
            .where(Delivery.state == DeliveryState.PENDING)
            .values(state=state, ended_at=func.now(), attempts=1)
            .returning(Delivery.id)
        ).all()
        session.add_all(
            Attempt(delivery_id=delivery_id, number=1, duration_ms=12, status_code=code, snippet="no")
            for delivery_id in ended
        )


def error_of(answer):
    return answer.status_code, answer.json["error"]["code"], answer.json["error"]["param"]


def test_an_endpoint_is_registered_and_its_secret_shown_once(register, alice):
    made = register("job.completed", "batch.*", description="Billing")
    assert made["secret"].startswith("whsec_")
    assert is_id("whe", made["id"])
    shown = alice.get(f"{ENDPOINTS}/{made['id']}").json
    assert shown == {name: value for name, value in made.items() if name != "secret"}
    assert (shown["url"], shown["events"], shown["enabled"]) == (URL, ["job.completed", "batch.*"], True)
    [secret] = shown["secrets"]
    assert (secret["scheme"], secret["hint"], secret["public_key"]) == ("v1", made["secret"][-4:], None)
    assert alice.get(ENDPOINTS).json["data"] == [shown]


def test_an_ed25519_endpoint_shows_its_public_key_and_never_the_private_one(register, alice):
    made = register(scheme="v1a")
    assert made["secret"] is None
    assert made["secrets"][0]["public_key"].startswith("whpk_")
    with transaction() as session:
        endpoint = endpoints.get_endpoint(session, _account(session, made["id"]), made["id"])
        [private] = secrets.signing_secrets(session, endpoint)
    assert signing.public_key(private) == made["secrets"][0]["public_key"]
    assert private not in alice.get(ENDPOINTS).text


def _account(session, endpoint_id):
    return session.get(endpoints.Endpoint, endpoint_id).account_id


def test_an_endpoint_that_names_no_types_hears_of_what_ends(register):
    events = register()["events"]
    assert {"job.completed", "response.failed", "batch.expired", "webhook_endpoint.disabled"} < set(events)
    assert not {"job.in_progress", "batch.progress"} & set(events)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"url": "http://93.184.216.1/hook"}, (400, "webhook_url_refused", "url")),
        ({"url": "https://127.0.0.1/hook"}, (400, "webhook_url_refused", "url")),
        ({"url": "https://user:word@93.184.216.1/"}, (400, "webhook_url_refused", "url")),
        ({"url": "https://93.184.216.1/" + "ä" * 1020}, (400, "webhook_url_refused", "url")),
        ({"url": "https://93.184.216.1/" + "x" * 2048}, (400, "invalid_value", "url")),
        ({"events": ["job.done"]}, (400, "webhook_event_type_unknown", "events")),
        ({"events": []}, (400, "invalid_value", "events")),
        ({"scheme": "v2"}, (400, "invalid_value", "scheme")),
        ({"colour": "blue"}, (400, "invalid_value", "colour")),
    ],
)
def test_a_bad_endpoint_is_refused_by_name(alice, body, expected):
    assert error_of(alice.post(ENDPOINTS, {"url": URL, **body})) == expected
    assert alice.get(ENDPOINTS).json["data"] == []


def test_an_endpoint_changes_in_what_is_given(register, alice):
    made = register("job.completed", description="Before")
    path = f"{ENDPOINTS}/{made['id']}"
    changed = alice.post(path, {"events": ["*"], "url": "https://93.184.216.9/"}).json
    assert (changed["url"], changed["events"], changed["description"]) == (
        "https://93.184.216.9/",
        ["*"],
        "Before",
    )
    assert error_of(alice.post(path, {"url": "https://10.0.0.1/"})) == (400, "webhook_url_refused", "url")
    off = alice.post(path, {"enabled": False}).json
    assert (off["enabled"], off["disabled_reason"]) == (False, "Its owner disabled it.")
    on = alice.post(path, {"enabled": True}).json
    assert (on["enabled"], on["disabled_at"], on["disabled_reason"]) == (True, None, None)


def test_a_deleted_endpoint_is_gone(register, alice):
    path = f"{ENDPOINTS}/{register()['id']}"
    assert alice("DELETE", path).json["deleted"] is True
    assert error_of(alice.get(path))[:2] == (404, "webhook_endpoint_not_found")


def test_an_accounts_endpoints_have_a_limit(register, alice, monkeypatch):
    limited = settings().model_copy(update={"max_webhook_endpoints": 1})
    monkeypatch.setattr(endpoints, "settings", lambda: limited)
    register()
    assert error_of(alice.post(ENDPOINTS, {"url": URL}))[:2] == (403, "webhook_endpoint_limit")


def test_nothing_of_another_account_is_found(register, end_jobs, alice, mallory):
    endpoint = register()
    end_jobs()
    [delivery] = alice.get(DELIVERIES).json["data"]
    endpoint_path, delivery_path = f"{ENDPOINTS}/{endpoint['id']}", f"{DELIVERIES}/{delivery['id']}"
    event_path = f"/v1/webhooks/events/{delivery['event']['id']}"
    for method, path in (
        *(("GET", endpoint_path), ("DELETE", endpoint_path), ("POST", f"{endpoint_path}/rotate")),
        *(("POST", f"{endpoint_path}/test"), ("POST", f"{endpoint_path}/redeliver")),
        *(("GET", f"{endpoint_path}/deliveries"), ("GET", f"{DELIVERIES}?endpoint_id={endpoint['id']}")),
        *(("GET", delivery_path), ("POST", f"{delivery_path}/redeliver")),
        *(("GET", event_path), ("POST", f"{event_path}/redeliver")),
        *(("GET", f"{DELIVERIES}?after={delivery['id']}"), ("GET", f"{ENDPOINTS}?after={endpoint['id']}")),
    ):
        assert mallory(method, path).status_code == 404, path
    assert mallory.post(endpoint_path, {"enabled": False}).status_code == 404
    assert mallory.get(DELIVERIES).json["data"] == mallory.get(ENDPOINTS).json["data"] == []
    assert alice.get(endpoint_path).json["enabled"]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("name", ["x", "whe_0", "whe_" + "f" * 33, "%00"])
def test_an_id_that_is_none_is_not_found(alice, method, name):
    assert alice(method, f"{ENDPOINTS}/{name}").status_code == 404


def test_after_a_rotation_messages_verify_with_both_secrets(register, end_jobs, alice):
    made = register("job.completed")
    rotated = alice.post(f"{ENDPOINTS}/{made['id']}/rotate", {"overlap_seconds": 600}).json
    new, old = rotated["secrets"]
    assert rotated["secret"] != made["secret"]
    assert (new["expires_at"], old["id"]) == (None, made["secrets"][0]["id"])
    assert 590 < old["expires_at"] - new["created_at"] < 610
    end_jobs()
    message, headers = _sent(made["id"])
    for secret in (made["secret"], rotated["secret"]):
        event = OpenAI(api_key="none").webhooks.unwrap(message.body, headers, secret=secret)
        # A type of ours comes in a class of another's; what it says is right.
        assert (event.id, event.type) == (message.id, "job.completed")
    alice.post(f"{ENDPOINTS}/{made['id']}/rotate", {"overlap_seconds": 0})
    assert len(alice.get(f"{ENDPOINTS}/{made['id']}").json["secrets"]) == 1


def _sent(endpoint_id):
    """The one message, with the headers that a sender would give it now."""
    with transaction() as session:
        [message] = session.query(Message).all()
        endpoint = session.get(endpoints.Endpoint, endpoint_id)
        keys = secrets.signing_secrets(session, endpoint)
    return message, signing.headers(message.id, message.body.encode(), keys, clock.now())


def test_a_rotation_without_a_body_overlaps_for_a_day(register, alice):
    made = register()
    new, old = alice.post(f"{ENDPOINTS}/{made['id']}/rotate").json["secrets"]
    assert 86_390 < old["expires_at"] - new["created_at"] < 86_410
    refused = alice.post(f"{ENDPOINTS}/{made['id']}/rotate", {"overlap_seconds": -1})
    assert error_of(refused) == (400, "invalid_value", "overlap_seconds")


def test_the_accounts_secret_is_made_by_its_first_rotation(alice):
    assert alice.get(SECRET).json == {"object": "webhook_secrets", "secrets": []}
    made = alice.post(f"{SECRET}/rotate").json
    assert made["secret"].startswith("whsec_")
    assert made["secrets"][0]["hint"] == made["secret"][-4:]
    shown = alice.get(SECRET)
    assert shown.json["secrets"] == made["secrets"]
    assert made["secret"] not in shown.text


def test_the_delivery_log_shows_what_became_of_each_event(register, end_jobs, alice):
    endpoint = register("job.completed")
    [job_id] = end_jobs()
    [waiting] = alice.get(DELIVERIES).json["data"]
    assert (waiting["state"], waiting["attempts"], waiting["last_attempt"]) == ("pending", 0, None)
    assert waiting["next_attempt_at"]
    settle(DeliveryState.FAILED, code=503)
    [failed] = alice.get(f"{ENDPOINTS}/{endpoint['id']}/deliveries").json["data"]
    assert (failed["state"], failed["next_attempt_at"], failed["endpoint_id"]) == (
        "failed",
        None,
        endpoint["id"],
    )
    assert failed["event"] | {"id": ""} == {"id": "", "type": "job.completed", "subject": job_id, "sequence": 3}
    whole = alice.get(f"{DELIVERIES}/{failed['id']}").json
    assert [attempt["status_code"] for attempt in whole["log"]] == [503]
    assert whole["last_attempt"] == whole["log"][0]
    assert (whole["log"][0]["duration_ms"], whole["log"][0]["snippet"]) == (12, "no")


def test_deliveries_are_listed_in_pages_and_filtered(register, end_jobs, alice):
    first, second = register("job.completed"), register("job.*", url="https://93.184.216.2/")
    job_ids = end_jobs(2)
    page = alice.get(f"{DELIVERIES}?limit=3").json
    rest = alice.get(f"{DELIVERIES}?limit=100&after={page['last_id']}").json
    every = [*page["data"], *rest["data"]]
    assert (page["has_more"], rest["has_more"]) == (True, False)
    assert len(page["data"]) == 3
    ids = [delivery["id"] for delivery in every]
    assert ids == sorted(set(ids), reverse=True)

    def listed(query):
        return alice.get(f"{DELIVERIES}?{query}").json["data"]

    assert {d["endpoint_id"] for d in listed(f"endpoint_id={first['id']}")} == {first["id"]}
    assert {d["event"]["subject"] for d in listed(f"subject={job_ids[0]}")} == {job_ids[0]}
    assert len(listed("type=job.completed")) == 4
    one = next(d for d in every if d["endpoint_id"] == second["id"] and d["event"]["type"] == "job.completed")
    assert len(listed(f"event_id={one['event']['id']}")) == 2
    settle(DeliveryState.DELIVERED)
    assert listed("state=pending") == []
    assert len(listed("state=delivered")) == len(every)
    assert error_of(alice.get(f"{DELIVERIES}?state=lost")) == (400, "invalid_value", "state")


def test_an_event_is_shown_as_it_is_sent(register, end_jobs, alice):
    register("job.completed")
    [job_id] = end_jobs()
    [delivery] = alice.get(DELIVERIES).json["data"]
    event = alice.get(f"/v1/webhooks/events/{delivery['event']['id']}").json
    assert (event["id"], event["type"], event["object"]) == (
        event["body"]["id"],
        "job.completed",
        "webhook_event",
    )
    assert event["body"]["data"]["id"] == job_id


def test_a_delivery_again_is_a_new_one_of_the_same_event(register, end_jobs, alice):
    register("job.completed")
    end_jobs()
    settle(DeliveryState.FAILED)
    [failed] = alice.get(DELIVERIES).json["data"]
    answer = alice.post(f"{DELIVERIES}/{failed['id']}/redeliver")
    assert answer.status_code == 202
    again = answer.json
    assert (again["state"], again["attempts"], again["event"]) == ("pending", 0, failed["event"])
    assert again["id"] != failed["id"]
    assert alice.get(f"{DELIVERIES}/{failed['id']}").json["state"] == "failed"


def test_an_event_again_goes_to_every_enabled_endpoint_that_it_was_for(register, end_jobs, alice):
    for n in range(3):
        register("job.completed", url=f"https://93.184.216.{n + 1}/")
    end_jobs()
    settle(DeliveryState.DELIVERED)
    register("job.completed", url="https://93.184.216.9/")
    [off, one, two] = alice.get(DELIVERIES).json["data"]
    alice.post(f"{ENDPOINTS}/{off['endpoint_id']}", {"enabled": False})
    answer = alice.post(f"/v1/webhooks/events/{off['event']['id']}/redeliver")
    assert (answer.status_code, answer.json["count"]) == (202, 2)
    pending = alice.get(f"{DELIVERIES}?state=pending").json["data"]
    assert {d["endpoint_id"] for d in pending} >= {one["endpoint_id"], two["endpoint_id"]}
    assert not [d for d in pending if d["endpoint_id"] == off["endpoint_id"]]


def test_a_disabled_endpoint_is_sent_nothing_again(register, end_jobs, alice):
    endpoint = register("job.completed")
    end_jobs()
    [delivery] = alice.get(DELIVERIES).json["data"]
    path = f"{ENDPOINTS}/{endpoint['id']}"
    alice.post(path, {"enabled": False})
    for refused in (f"{path}/test", f"{path}/redeliver", f"{DELIVERIES}/{delivery['id']}/redeliver"):
        answer = alice.post(refused)
        assert error_of(answer)[:2] == (409, "webhook_endpoint_disabled")
        assert answer.headers["x-should-retry"] == "false"


def test_what_a_disabled_endpoint_missed_is_sent_when_asked_for(register, end_jobs, alice):
    endpoint = register("job.completed")
    path = f"{ENDPOINTS}/{endpoint['id']}"
    end_jobs()
    settle(DeliveryState.DELIVERED)
    alice.post(path, {"enabled": False})
    missed = end_jobs(2)
    alice.post(path, {"enabled": True})
    assert alice.post(f"{path}/redeliver").json["count"] == 2
    pending = alice.get(f"{DELIVERIES}?state=pending").json["data"]
    assert {delivery["event"]["subject"] for delivery in pending} == set(missed)
    # They are on their way now.
    assert alice.post(f"{path}/redeliver").json["count"] == 0


def test_a_range_takes_events_by_time_and_by_how_they_ended(register, end_jobs, alice):
    endpoint = register("job.completed")
    path = f"{ENDPOINTS}/{endpoint['id']}/redeliver"
    end_jobs(2)
    settle(DeliveryState.DELIVERED)
    now = clock.now()
    later, earlier = (now + timedelta(minutes=1)).isoformat(), (now - timedelta(minutes=1)).isoformat()

    def count(**body):
        return alice.post(path, {"state": ["delivered"], **body}).json["count"]

    assert count(since=later) == count(until=earlier) == 0
    assert count(state=["failed"]) == 0
    assert count(since=earlier, until=later) == 2
    assert count() == 0
    settle(DeliveryState.DELIVERED)
    assert count(since=int(now.timestamp()) - 60) == 2
    refused = alice.post(path, {"since": "2026-01-01T00:00:00"})
    assert error_of(refused) == (400, "invalid_value", "since")


def test_a_test_event_is_delivered_whatever_the_endpoint_wants(register, alice):
    endpoint = register("batch.failed")
    answer = alice.post(f"{ENDPOINTS}/{endpoint['id']}/test")
    assert answer.status_code == 202
    assert (answer.json["state"], answer.json["event"]["type"]) == ("pending", "webhook.test")
    _, headers = _sent(endpoint["id"])
    assert headers["webhook-id"] == answer.json["event"]["id"]
