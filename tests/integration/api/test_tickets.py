"""`POST /v1/stream-tickets`, and WebSockets that are opened with a ticket, as browsers do."""

import orjson
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from app.accounts import keys
from app.api import auth
from app.db import transaction
from app.redis import client


@pytest.fixture
def job(alice):
    job = alice.submit().json
    alice.post(job["urls"]["cancel"])
    return job


@pytest.fixture
def ticket(alice, job):
    return alice.post("/v1/stream-tickets", {"job_id": job["id"]}).json["ticket"]


@pytest.fixture
def open_page(threaded_server):
    """`open_page(path)` opens a stream as a page of ours would: with an Origin, without a key."""

    def run(path, origin=f"http://{threaded_server}", **options):
        return connect(f"ws://{threaded_server}{path}", origin=origin, proxy=None, **options)

    return run


def events(ws):
    """The types of all events; the stream has to end normally, on which the iteration ends."""
    return [orjson.loads(message)["type"] for message in ws]


def refused(open_page, *args, **options):
    with pytest.raises(InvalidStatus) as refusal:
        open_page(*args, **options)
    return refusal.value.response.status_code, orjson.loads(refusal.value.response.body)["error"]["code"]


def test_a_ticket_says_how_long_it_lives(alice, job):
    answer = alice.post("/v1/stream-tickets", {"job_id": job["id"]})
    assert answer.status_code == 201
    assert answer.json["expires_in"] == 60
    (key,) = client().keys("lh:ticket:*")
    assert 50 < client().ttl(key) <= 60
    assert answer.json["ticket"].encode() not in key


def test_a_ticket_opens_its_job_once_by_query(open_page, job, ticket):
    path = f"{job['urls']['stream']}?ticket={ticket}"
    with open_page(path) as ws:
        assert events(ws) == ["job.queued", "job.cancelled"]
    assert refused(open_page, path) == (401, "invalid_ticket")


def test_a_ticket_opens_its_job_once_as_subprotocol(open_page, job, ticket):
    protocol = f"longhaul.ticket.{ticket}"
    with open_page(f"{job['urls']['stream']}?after=1", subprotocols=[protocol]) as ws:
        assert ws.subprotocol == protocol
        assert events(ws) == ["job.cancelled"]
    assert refused(open_page, job["urls"]["stream"], subprotocols=[protocol]) == (401, "invalid_ticket")


def test_a_ticket_does_not_open_another_job(alice, open_page, ticket):
    other = alice.submit().json
    assert refused(open_page, f"{other['urls']['stream']}?ticket={ticket}") == (401, "invalid_ticket")


def test_an_invented_ticket_opens_nothing(open_page, job):
    assert refused(open_page, f"{job['urls']['stream']}?ticket=invented") == (401, "invalid_ticket")


def test_a_foreign_page_cannot_use_a_ticket_nor_use_it_up(open_page, job, ticket):
    path = f"{job['urls']['stream']}?ticket={ticket}"
    assert refused(open_page, path, origin="https://evil.example") == (403, "origin_forbidden")
    assert refused(open_page, path, origin=None) == (403, "origin_forbidden")
    with open_page(path) as ws:
        assert events(ws) == ["job.queued", "job.cancelled"]


def test_a_page_on_the_list_may_use_a_ticket(open_page, job, ticket, monkeypatch):
    from app.api import sockets
    from config.settings import settings

    listed = settings().model_copy(update={"allowed_origins": ["https://app.example"]})
    monkeypatch.setattr(sockets, "settings", lambda: listed)
    with open_page(f"{job['urls']['stream']}?ticket={ticket}", origin="https://app.example") as ws:
        assert events(ws) == ["job.queued", "job.cancelled"]


def test_a_ticket_dies_with_the_key_that_made_it(open_page, job, ticket):
    with transaction() as session:
        for key, _ in keys.list_keys(session):
            keys.revoke_key(session, key.id)
    auth._known.clear()
    assert refused(open_page, f"{job['urls']['stream']}?ticket={ticket}") == (401, "invalid_api_key")


def test_there_is_no_ticket_for_another_accounts_job(mallory, job):
    assert mallory.post("/v1/stream-tickets", {"job_id": job["id"]}).status_code == 404


def test_a_ticket_names_its_job(alice):
    answer = alice.post("/v1/stream-tickets", {})
    assert (answer.status_code, answer.json["error"]["param"]) == (400, "job_id")


def test_without_redis_there_are_no_tickets_for_now(alice, job, monkeypatch):
    import redis

    from app.api import tickets

    monkeypatch.setattr(tickets, "client", lambda: redis.Redis(port=1))
    answer = alice.post("/v1/stream-tickets", {"job_id": job["id"]})
    assert (answer.status_code, answer.json["error"]["code"]) == (503, "redis_unavailable")
    assert answer.headers["Retry-After"]
