"""A batch's log: JSON pages, server-sent events, WebSocket."""

import threading

import httpx
import orjson
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from app.accounts import keys
from app.api import auth, following
from app.api.batches import events as batch_events
from app.batches import lifecycle
from app.db import transaction
from config.settings import settings
from tests.eventually import eventually
from tests.integration.api.batching import chat_line

ENDED = ["batch.validating", "batch.in_progress", "batch.finalizing", "batch.completed"]


@pytest.fixture
def batch(batches):
    return batches.validated(chat_line("a"))


@pytest.fixture
def end(batches, batch):
    """`end()` answers the only line and lets the batch end."""

    def run():
        batches.answer(batch["id"], 1)
        return batches.run(batch["id"])

    return run


class Follower(threading.Thread):
    """Server-sent events of a path, to the end of the stream."""

    def __init__(self, server, path, key, **headers):
        super().__init__(daemon=True)
        self.events = []
        self._url = f"http://{server}{path}"
        self._headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {key}", **headers}
        self.start()

    def run(self):
        with httpx.stream("GET", self._url, headers=self._headers, timeout=30, trust_env=False) as response:
            self.status = response.status_code
            self.events += [
                orjson.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: ")
            ]

    def ended(self):
        self.join(20)
        assert not self.is_alive()
        return [event["type"] for event in self.events]


def page_of(alice, batch, **query):
    answer = alice.get(batch["urls"]["events"], query_string=query)
    assert answer.status_code == 200, answer.json
    return answer.json


def test_the_log_is_read_in_pages_to_its_terminal_event(batch, end, alice):
    with transaction() as session:
        lifecycle.note_progress(session, batch["id"], {"running": 0})
    first = page_of(alice, batch, limit=2)
    assert [(event["type"], event["seq"]) for event in first["data"]] == [
        ("batch.validating", 1),
        ("batch.in_progress", 2),
    ]
    assert (first["data"][1]["status"], first["data"][1]["batch_id"]) == ("in_progress", batch["id"])
    assert (first["has_more"], first["next_after"]) == (True, 2)
    end()
    rest = page_of(alice, batch, after=2)
    assert [event["type"] for event in rest["data"]] == ["batch.progress", *ENDED[2:]]
    assert "status" not in rest["data"][0]
    assert rest["data"][-1]["request_counts"] == {"total": 1, "completed": 1, "failed": 0}
    assert rest["has_more"] is False
    over = page_of(alice, batch, after=rest["next_after"])
    assert (over["data"], over["has_more"]) == ([], False)


def test_a_page_is_waited_for(batch, alice):
    def say():
        with transaction() as session:
            lifecycle.note_progress(session, batch["id"], {"running": 1})

    timer = threading.Timer(0.2, say)
    timer.start()
    page = page_of(alice, batch, after=2, wait=20)
    timer.join()
    assert [event["running"] for event in page["data"]] == [1]
    assert page_of(alice, batch, after=3, wait=0.1) == {
        "object": "list",
        "data": [],
        "next_after": 3,
        "has_more": True,
    }


def test_a_stream_replays_follows_and_ends(batch, end, threaded_server, alice):
    follower = Follower(threaded_server, batch["urls"]["events"], alice.secret)
    late = Follower(threaded_server, batch["urls"]["events"], alice.secret, **{"Last-Event-ID": "2"})
    eventually(lambda: following.places.taken == 2)
    end()
    assert follower.ended() == ENDED
    assert late.ended() == ENDED[2:]
    eventually(lambda: following.places.taken == 0)
    over = Follower(threaded_server, f"{batch['urls']['events']}?after=4", alice.secret)
    assert (over.ended(), over.status) == ([], 204)


def open_stream(server, path, key=None, **options):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return connect(f"ws://{server}{path}", additional_headers=headers, proxy=None, **options)


def to_the_end(ws):
    """The types of what comes, and the close code."""
    seen = []
    try:
        while True:
            seen.append(orjson.loads(ws.recv(timeout=10))["type"])
    except ConnectionClosed as closed:
        return seen, closed.rcvd and closed.rcvd.code


def test_a_websocket_replays_follows_and_ends(batch, end, threaded_server, alice):
    with open_stream(threaded_server, f"{batch['urls']['stream']}?after=1", alice.secret) as ws:
        assert orjson.loads(ws.recv(timeout=5))["type"] == ENDED[1]
        end()
        assert to_the_end(ws) == (ENDED[2:], 1000)
    with open_stream(threaded_server, f"{batch['urls']['stream']}?after=4", alice.secret) as ws:
        assert to_the_end(ws) == ([], 1000)


def test_a_ticket_opens_the_stream_of_its_batch_once(batch, end, threaded_server, alice, mallory):
    end()
    wanted = {"batch_id": batch["id"]}
    ticket = alice.post("/v1/stream-tickets", wanted).json["ticket"]
    path = f"{batch['urls']['stream']}?ticket={ticket}"
    origin = f"http://{threaded_server}"
    with open_stream(threaded_server, path, origin=origin) as ws:
        assert orjson.loads(ws.recv(timeout=5))["type"] == ENDED[0]
    with pytest.raises(InvalidStatus) as refusal:
        open_stream(threaded_server, path, origin=origin)
    assert refusal.value.response.status_code == 401
    assert mallory.post("/v1/stream-tickets", wanted).status_code == 404
    for body in ({}, {"job_id": "job_x", "batch_id": batch["id"]}):
        assert alice.post("/v1/stream-tickets", body).status_code == 400


def test_another_accounts_stream_is_not_found(batch, threaded_server, mallory):
    with pytest.raises(InvalidStatus) as refusal:
        open_stream(threaded_server, batch["urls"]["stream"], mallory.secret)
    assert refusal.value.response.status_code == 404


def test_a_revoked_key_ends_a_stream(batch, threaded_server, alice, monkeypatch):
    often = settings().model_copy(update={"ping_seconds": 0.2})
    monkeypatch.setattr(batch_events, "settings", lambda: often)
    monkeypatch.setattr(auth, "_known", {})
    with open_stream(threaded_server, batch["urls"]["stream"], alice.secret) as ws:
        ws.recv(timeout=5)
        with transaction() as session:
            for key, _ in keys.list_keys(session):
                keys.revoke_key(session, key.id)
        auth._known.clear()
        assert to_the_end(ws)[1] == 4401
