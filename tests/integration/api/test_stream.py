"""`WS /v1/jobs/{id}/stream`, by key."""

import socket
import threading

import httpx
import orjson
import pytest
from sqlalchemy import create_engine, text
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from app.accounts import keys
from app.api import draining, following
from app.db import engine, transaction
from tests.eventually import eventually
from tests.following import StrictFollower


@pytest.fixture
def running(alice, work):
    """A job in progress: its paths, and its worker."""
    job = alice.submit().json
    return job["urls"], work(job["id"])


@pytest.fixture
def open_stream(threaded_server, alice):
    """`open_stream(path)` is a WebSocket with alice's key."""

    def run(path, key=alice.secret, **options):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        headers |= options.pop("headers", {})
        return connect(f"ws://{threaded_server}{path}", additional_headers=headers, proxy=None, **options)

    return run


def refused(open_stream, *args, **options):
    """The status and the error of a handshake that is refused."""
    with pytest.raises(InvalidStatus) as refusal:
        open_stream(*args, **options)
    response = refusal.value.response
    return response.status_code, orjson.loads(response.body)["error"]


def follow(ws, seen=None):
    """Everything to the end, and the close code."""
    seen = seen or StrictFollower()
    try:
        while True:
            seen.take(orjson.loads(ws.recv(timeout=10)))
    except ConnectionClosed as closed:
        return seen, closed.rcvd.code if closed.rcvd else None


def test_a_stream_replays_follows_and_ends(running, open_stream):
    urls, worker = running
    worker.say("stored ")
    worker.store()
    worker.say("tail ")
    with open_stream(urls["stream"]) as ws:
        assert [orjson.loads(ws.recv(timeout=5))["seq"] for _ in range(4)] == [1, 2, 3, 4]
        worker.say("live")
        assert orjson.loads(ws.recv(timeout=1))["delta"] == "live"
        worker.complete()
        assert orjson.loads(ws.recv(timeout=1))["type"] == "job.completed"
        with pytest.raises(ConnectionClosed) as closed:
            ws.recv(timeout=2)
        assert closed.value.rcvd.code == 1000


@pytest.mark.parametrize("after", range(8))
def test_a_stream_resumes_anywhere(running, open_stream, after):
    urls, worker = running
    words = ["one ", "two ", "three ", "four ", "five"]
    for word in words[:3]:
        worker.say(word)
    worker.store()
    worker.say(words[3])
    seen = StrictFollower(cursor=after, text="".join(words[: max(0, after - 2)]))
    with open_stream(f"{urls['stream']}?after={after}") as ws:
        worker.say(words[4])
        worker.complete()
        seen, code = follow(ws, seen)
    assert (seen.text, seen.last["type"], code) == ("".join(words), "job.completed", 1000)


def test_a_cursor_at_the_end_gets_nothing_and_a_normal_close(running, open_stream):
    urls, worker = running
    worker.complete()
    with open_stream(f"{urls['stream']}?after=3") as ws:
        assert follow(ws)[1] == 1000


def test_many_followers_of_a_live_job_each_get_everything_once(running, open_stream):
    urls, worker = running
    seen = {}

    def run(number):
        with open_stream(urls["stream"]) as ws:
            seen[number] = follow(ws)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    whole = ""
    for number in range(200):
        worker.say(f"{number} ")
        whole += f"{number} "
        if number % 23 == 0:
            worker.store()
    worker.complete()
    for thread in threads:
        thread.join(15)
    assert [(follower.text, code) for follower, code in seen.values()] == [(whole, 1000)] * 8
    eventually(lambda: following.places.taken == 0)


def test_an_emoji_and_a_frame_beyond_64_kilobytes_arrive_whole(running, open_stream):
    urls, worker = running
    worker.say("\N{SLIGHTLY SMILING FACE}" * 20_000)
    worker.complete()
    with open_stream(urls["stream"]) as ws:
        assert follow(ws)[0].text == "\N{SLIGHTLY SMILING FACE}" * 20_000


def test_without_a_valid_key_the_handshake_is_refused(running, open_stream):
    status, error = refused(open_stream, running[0]["stream"], key=None)
    assert (status, error["code"]) == (401, "invalid_api_key")
    assert refused(open_stream, running[0]["stream"], key="lh-wrong")[0] == 401


def test_another_accounts_job_is_not_found(running, open_stream, mallory):
    status, error = refused(open_stream, running[0]["stream"], key=mallory.secret)
    assert (status, error["code"]) == (404, "job_not_found")


def test_a_page_from_elsewhere_is_refused_even_with_a_key(running, open_stream):
    for origin in ("https://evil.example", "null"):
        status, error = refused(open_stream, running[0]["stream"], headers={"Origin": origin})
        assert (status, error["code"]) == (403, "origin_forbidden")


def test_our_own_pages_may_open_streams(running, open_stream, threaded_server):
    urls, worker = running
    worker.complete()
    with open_stream(urls["stream"], headers={"Origin": f"http://{threaded_server}"}) as ws:
        assert follow(ws)[1] == 1000


def test_a_bad_cursor_is_refused_by_name(running, open_stream):
    status, error = refused(open_stream, f"{running[0]['stream']}?after=x")
    assert (status, error["param"]) == (400, "after")


def test_a_plain_request_is_told_that_this_is_a_websocket(alice, running):
    assert alice.get(running[0]["stream"]).status_code == 400


def test_compression_is_not_negotiated(running, open_stream):
    with open_stream(running[0]["stream"]) as ws:
        assert ws.protocol.extensions == []


def test_a_message_beyond_16_kilobytes_ends_the_stream(running, open_stream):
    with open_stream(running[0]["stream"]) as ws:
        ws.recv(timeout=5)
        ws.send("x" * 20_000)
        assert follow(ws, StrictFollower(cursor=1))[1] == 1009


def test_small_messages_and_pings_of_the_client_are_harmless(running, open_stream):
    urls, worker = running
    with open_stream(urls["stream"]) as ws:
        pong = ws.ping()
        for _ in range(50):
            ws.send("hello")
        assert pong.wait(5)
        worker.say("still here")
        worker.complete()
        seen, code = follow(ws)
    assert (seen.text, code) == ("still here", 1000)


def test_a_client_that_leaves_frees_its_place(running, open_stream):
    with open_stream(running[0]["stream"]) as ws:
        eventually(lambda: following.places.taken == 1)
        ws.socket.shutdown(socket.SHUT_RDWR)
        eventually(lambda: following.places.taken == 0, 5)


def test_a_full_server_refuses_another_stream(running, open_stream, monkeypatch):
    from config.settings import settings

    monkeypatch.setattr(following, "settings", lambda: settings().model_copy(update={"max_followers": 1}))
    with open_stream(running[0]["stream"]):
        eventually(lambda: following.places.taken == 1)
        status, error = refused(open_stream, running[0]["stream"])
        assert (status, error["code"]) == (503, "server_busy")


def test_a_stream_ends_with_1012_when_the_server_stops(running, open_stream, monkeypatch):
    with open_stream(running[0]["stream"]) as ws:
        ws.recv(timeout=5)
        monkeypatch.setattr(draining, "_state", {"draining": True})
        assert follow(ws, StrictFollower(cursor=1))[1] == 1012
        assert refused(open_stream, running[0]["stream"])[0] == 503


def test_a_stream_ends_when_its_key_is_revoked(running, open_stream, make_key, monkeypatch):
    from app.api import auth
    from config.settings import settings

    monkeypatch.setattr(following, "settings", lambda: settings().model_copy(update={"ping_seconds": 0.2}))
    monkeypatch.setattr(auth, "_known", {})
    with open_stream(running[0]["stream"]) as ws:
        ws.recv(timeout=5)
        with transaction() as session:
            for key, _ in keys.list_keys(session):
                keys.revoke_key(session, key.id)
        auth._known.clear()
        assert follow(ws, StrictFollower(cursor=1))[1] == 4401


def test_a_follower_waits_through_an_outage_of_the_database(running, open_stream):
    urls, worker = running
    name = engine().url.database
    aside = create_engine(engine().url.set(database="template1"), isolation_level="AUTOCOMMIT")
    other = aside.connect()
    with open_stream(urls["stream"]) as ws:
        seen = StrictFollower()
        for _ in range(2):
            seen.take(orjson.loads(ws.recv(timeout=5)))
        worker.say("not live, ", live=False)
        try:
            other.execute(text(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'))
            other.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = :name AND pid <> pg_backend_pid()"
                ),
                {"name": name},
            )
            worker.say("live")  # with a hole before it, for which the follower asks the database
            with pytest.raises(TimeoutError):
                ws.recv(timeout=1.5)
        finally:
            other.execute(text(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'))
            other.close()
            aside.dispose()
        worker.store()
        worker.complete()
        seen, code = follow(ws, seen)
    assert (seen.text, code) == ("not live, live", 1000)


@pytest.mark.parametrize("headers", [{}, {"Sec-WebSocket-Version": "12", "Sec-WebSocket-Key": "eA=="}])
def test_a_broken_handshake_is_a_bad_request(alice, running, threaded_server, headers):
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", **alice.headers, **headers}
    answer = httpx.get(f"http://{threaded_server}{running[0]['stream']}", headers=headers, trust_env=False)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_handshake")
