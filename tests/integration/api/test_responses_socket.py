"""`WS /v1/responses`: OpenAI's WebSocket mode, with its own client and with one that says anything."""

import os
import signal
import threading
from contextlib import closing

import httpx
import orjson
import pytest
from openai import OpenAI
from openai.lib.responses_websocket import ResponsesWebSocketLimits, ResponsesWebSocketSession
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from app.accounts import keys
from app.api import following
from app.api.calls import responses_socket
from app.api.calls.lanes import MAX_LANES, MAX_WAITING
from app.db import transaction
from app.jobs import lifecycle
from app.jobs.lifecycle import Prefill
from app.jobs.tables import Job
from app.streams.announce import announce
from tests.eventually import eventually
from tests.integration.api.conftest import running_gunicorn
from tests.integration.api.test_gunicorn import open_raw_websocket, read_all, whole_messages

pytestmark = pytest.mark.usefixtures("served")

SAY = {"model": "faulty", "input": "Say something."}


def is_served(address, caller):
    """The server sees the worker that the test plays."""
    answer = httpx.get(f"http://{address}/v1/models/faulty", headers=caller.headers, trust_env=False)
    return answer.json()["workers"]


@pytest.fixture
def address(gunicorn, alice):
    eventually(lambda: is_served(gunicorn[0], alice))
    return gunicorn[0]


@pytest.fixture
def client(address, alice):
    with OpenAI(base_url=f"http://{address}/v1", api_key=alice.secret, max_retries=0) as made:
        yield made


@pytest.fixture
def open_socket(address, alice):
    """`open_socket()` is a WebSocket with alice's key."""

    def run(key=alice.secret, address=address, headers=None):
        key_header = {"Authorization": f"Bearer {key}"} if key else {}
        headers = {**key_header, **(headers or {})}
        return connect(f"ws://{address}/v1/responses", additional_headers=headers, proxy=None)

    return run


def create(ws, **body):
    ws.send(orjson.dumps({"type": "response.create", **SAY, **body}), text=True)


def hear(ws, seconds=5):
    return orjson.loads(ws.recv(timeout=seconds))


def hear_until(ws, kind):
    """Every event up to the first of this type."""
    events = [hear(ws)]
    while events[-1]["type"] != kind:
        assert events[-1]["type"] != "error", events[-1]
        events.append(hear(ws))
    return events


def refused(open_socket, **options):
    """The status and the error code of a handshake that is refused."""
    with pytest.raises(InvalidStatus) as refusal:
        open_socket(**options)
    response = refusal.value.response
    return response.status_code, orjson.loads(response.body)["error"]["code"]


def close_code(ws, seconds=5):
    """The code with which the server closes, once everything is read."""
    try:
        while True:
            ws.recv(timeout=seconds)
    except ConnectionClosed as end:
        return end.rcvd.code if end.rcvd else None


def text_of(events):
    return "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")


def jobs():
    with transaction() as session:
        return session.query(Job).order_by(Job.id).all()


# OpenAI's client


def test_the_sdk_creates_responses_on_one_connection(client, pick_up):
    with client.responses.connect() as connection:
        for word in ("Hello", "again"):
            connection.response.create(**SAY)
            worker = pick_up()
            worker.say(f"{word} ")
            first = [connection.recv() for _ in range(5)]
            assert [event.type for event in first] == [
                "response.created",
                "response.in_progress",
                "response.output_item.added",
                "response.content_part.added",
                "response.output_text.delta",
            ]
            assert first[0].response.output == []
            worker.say("world")
            worker.complete()
            rest = [connection.recv()]
            while rest[-1].type != "response.completed":
                rest.append(connection.recv())
            assert rest[-1].response.output_text == f"{word} world"
            numbers = [event.sequence_number for event in first + rest]
            assert numbers == sorted(set(numbers))
            assert numbers[0] == 0
            assert all(event.stream_id is None for event in first + rest)
            stored = client.responses.retrieve(rest[-1].response.id)
            assert stored.output_text == f"{word} world"


def test_the_sdk_sees_an_error_and_goes_on(client, pick_up):
    with client.responses.connect() as connection:
        connection.response.create(model="nobody", input="Hello")
        event = connection.recv()
        assert (event.type, event.status, event.error.code) == ("error", 404, "model_not_found")
        assert event.error.param == "model"
        connection.response.create(**SAY)
        pick_up().complete()
        while connection.recv().type != "response.completed":
            pass


def test_lanes_run_side_by_side_and_each_in_order(client, pick_up):
    with client.responses.connect() as connection:
        for lane in ("a", "b", "a"):
            connection.response.create(**SAY, stream_id=lane)
        workers = [pick_up(), pick_up()]
        assert len(jobs()) == 2
        for worker in workers:
            worker.say("one")
            worker.complete()
        last = pick_up()
        last.say("two")
        last.complete()
        said = {"a": [], "b": []}
        while sum(len(ended) for ended in said.values()) < 3:
            event = connection.recv()
            if event.type == "response.completed":
                said[event.stream_id].append(event.response.output_text)
            assert event.stream_id in said
    assert said == {"a": ["one", "two"], "b": ["one"]}


@pytest.mark.parametrize("store", [True, False])
def test_a_response_follows_another_of_its_connection(client, pick_up, store):
    with client.responses.connect() as connection:
        connection.response.create(**SAY, store=store)
        worker = pick_up()
        worker.say("Blue.")
        worker.complete()
        while (event := connection.recv()).type != "response.completed":
            pass
        connection.response.create(
            model="faulty", input="Why?", previous_response_id=event.response.id, store=store
        )
        second = pick_up()
        second.complete()
        while (last := connection.recv()).type != "response.completed":
            pass
    assert last.response.previous_response_id == event.response.id
    said = second.job.request["input"]
    assert [message["role"] for message in said] == ["user", "assistant", "user"]
    assert "Blue." in str(said[1])


def test_an_unstored_response_is_known_to_its_connection_alone(client, pick_up):
    with client.responses.connect() as connection:
        connection.response.create(**SAY, store=False)
        pick_up().complete()
        while (event := connection.recv()).type != "response.completed":
            pass
        with client.responses.connect() as other:
            other.response.create(**SAY, previous_response_id=event.response.id)
            answer = other.recv()
    assert (answer.type, answer.error.code) == ("error", "previous_response_not_found")
    assert (answer.status, answer.error.param) == (400, "previous_response_id")


def test_a_response_that_fails_says_so_in_its_lane(open_socket, pick_up):
    with open_socket() as ws:
        create(ws, stream_id="a")
        worker = pick_up()
        with transaction() as session:
            move = lifecycle.fail(
                session, worker.job.id, worker.job.lease_id, Prefill(1, 0, 0.0), "engine_error", "It broke."
            )
        announce([move.event])
        event = hear_until(ws, "response.failed")[-1]
    assert (event["stream_id"], event["response"]["status"]) == ("a", "failed")


def test_the_session_of_the_sdk_collects_what_each_lane_says(client, pick_up):
    connection = client.responses.connect().enter()
    limits = ResponsesWebSocketLimits(
        max_lanes=8, max_events_per_lane=64, max_events=128, max_bytes_per_lane=10**6, max_bytes=10**6
    )
    with ResponsesWebSocketSession(connection, limits=limits) as session:
        lanes = [session.lane("a"), session.default]
        workers = []
        for lane in lanes:
            lane.send({"type": "response.create", **SAY})
            workers.append(pick_up())
        for word, worker in zip(("one", "two"), workers, strict=True):
            worker.say(word)
            worker.complete()
        assert [lane.get_final_response().output_text for lane in lanes] == ["one", "two"]


# What is not accepted


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"background": True}, "background"),
        ({"stream": False}, "stream"),
        ({"generate": False}, "generate"),
        ({"surprise": 1}, "surprise"),
        ({"temperature": 9}, "temperature"),
        ({"input": "a\x00b"}, "input"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"previous_response_id": "resp_none"}, "previous_response_id"),
    ],
)
def test_a_request_that_is_refused_leaves_the_connection(open_socket, pick_up, body, param):
    with open_socket() as ws:
        create(ws, stream_id="lane-1", **body)
        event = hear(ws)
        assert (event["type"], event["status"], event["stream_id"]) == ("error", 400, "lane-1")
        assert (event["error"]["type"], event["error"]["param"]) == ("invalid_request_error", param)
        create(ws, stream=True, background=None, generate=True)
        pick_up().complete()
        hear_until(ws, "response.completed")


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("{", None),
        ("[]", None),
        ('"response.create"', None),
        (b"\xff\xfe", None),
        ("{}", "type"),
        ('{"type": "response.delete"}', "type"),
        ('{"type": "response.create", "stream_id": 7}', "stream_id"),
        ('{"type": "response.create", "stream_id": "a b"}', "stream_id"),
        ('{"type": "response.create", "stream_id": ""}', "stream_id"),
        ('{"type": "response.create", "stream_id": "a\\n"}', "stream_id"),
        ('{"type": "response.create", "stream_id": "%s"}' % ("x" * 257), "stream_id"),
        ('{"type": "response.create", "model": "faulty", "input": "", "model": "faulty"}', "model"),
        ('{"type": "response.steer", "input": "x"}', "previous_response_id"),
    ],
)
def test_a_bad_message_leaves_the_connection(open_socket, message, param):
    with open_socket() as ws:
        for _ in range(2):
            ws.send(message)
            event = hear(ws)
            assert (event["type"], event["status"]) == ("error", 400)
            assert (event["error"]["type"], event["error"]["param"]) == ("invalid_request_error", param)
            assert "stream_id" not in event


def test_steering_fails_and_gives_the_input_back(client):
    with client.responses.connect() as connection:
        connection.response.steer(previous_response_id="resp_1", input="Go left.")
        event = connection.recv()
    assert (event.type, event.error.code) == ("response.steer.failed", "steering_not_supported")
    assert (event.steer.input, event.steer.previous_response_id) == ("Go left.", "resp_1")


def test_a_key_is_needed_before_the_handshake(open_socket):
    assert refused(open_socket, key=None) == (401, "invalid_api_key")
    assert refused(open_socket, key="lh_wrong") == (401, "invalid_api_key")


def test_a_key_that_is_revoked_creates_no_more(address, make_key, open_socket, alice):
    secret = make_key("alice", "other")
    with open_socket(key=secret) as ws:
        with transaction() as session:
            key = next(key for key, _ in keys.list_keys(session) if key.name == "other")
            keys.revoke_key(session, key.id)
        headers = {"Authorization": f"Bearer {secret}"}
        eventually(lambda: httpx.get(f"http://{address}/v1/models", headers=headers, trust_env=False).is_error)
        create(ws)
        event = hear(ws)
    assert (event["status"], event["error"]["code"]) == (401, "invalid_api_key")


def test_pages_of_others_may_not_connect(open_socket):
    assert refused(open_socket, headers={"Origin": "https://evil.example"}) == (403, "origin_forbidden")


def test_a_plain_get_is_told_to_upgrade(address, alice):
    answer = httpx.get(f"http://{address}/v1/responses", headers=alice.headers, trust_env=False)
    assert (answer.status_code, answer.headers["Upgrade"]) == (426, "websocket")
    assert answer.json()["error"]["code"] == "upgrade_required"


def test_a_broken_handshake_is_a_bad_request(address, alice):
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", **alice.headers}
    answer = httpx.get(f"http://{address}/v1/responses", headers=headers, trust_env=False)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_handshake")


# Bounds


@pytest.mark.parametrize("message", ["x" * 2_000_001, "é" * 1_000_001, ["x" * 1_000_000, "x" * 1_000_001]])
def test_a_message_beyond_the_limit_of_a_body_ends_the_connection(open_socket, message):
    with open_socket() as ws:
        ws.send(message)
        assert close_code(ws) == 1009


def test_a_message_at_the_limit_of_a_body_is_read(open_socket):
    with open_socket() as ws:
        head = '{"type":"response.create","model":"faulty","input":"x","surprise":"'
        ws.send(head + "x" * (2_000_000 - len(head) - 2) + '"}')
        assert hear(ws)["error"]["param"] == "surprise"


def test_lanes_and_what_waits_in_them_are_bounded(open_socket):
    with open_socket() as ws:
        for number in range(MAX_LANES + 1):
            create(ws, stream_id=f"lane-{number}")
        events = [hear(ws) for _ in range(MAX_LANES + 1)]
        (error,) = [event for event in events if event["type"] == "error"]
        assert (error["status"], error["error"]["code"]) == (429, "websocket_connection_full")
        assert error["stream_id"] == f"lane-{MAX_LANES}"
        for number in range(MAX_WAITING + 1):
            create(ws, stream_id=f"lane-{number % MAX_LANES}")
        error = hear(ws)
        assert (error["status"], error["error"]["code"]) == (429, "websocket_connection_full")
    eventually(lambda: all(job.status.is_terminal for job in jobs()), 5, "cancelled")
    assert len(jobs()) == MAX_LANES


def test_sixteen_lanes_at_once_get_their_own_text_whole(open_socket, pick_up):
    said = {}
    with open_socket() as ws:
        for number in range(MAX_LANES):
            create(ws, stream_id=f"lane-{number}")
        workers = [pick_up() for _ in range(MAX_LANES)]
        names = {worker.job.id.removeprefix("job_"): f"text of {n} " for n, worker in enumerate(workers)}

        def speak(worker):
            for _ in range(30):
                worker.say(names[worker.job.id.removeprefix("job_")])
            worker.complete()

        threads = [threading.Thread(target=speak, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        pong = ws.ping()
        events = {f"lane-{number}": [] for number in range(MAX_LANES)}
        while sum(ended[-1]["type"] == "response.completed" for ended in events.values() if ended) < MAX_LANES:
            event = hear(ws, 10)
            events[event["stream_id"]].append(event)
        for thread in threads:
            thread.join()
        assert pong.wait(2)
    for lane in events.values():
        name = names[lane[0]["response"]["id"].removeprefix("resp_")]
        said[name] = text_of(lane)
    assert said == {name: name * 30 for name in names.values()}


def test_a_connection_ends_after_an_hour(threaded_server, open_socket, pick_up, monkeypatch, alice):
    monkeypatch.setattr(responses_socket, "MAX_SECONDS", 1.0)
    with open_socket(address=threaded_server) as ws:
        create(ws, stream_id="a")
        worker = pick_up()
        event = hear_until_error(ws)
        assert (event["stream_id"], event["error"]["code"]) == ("a", "websocket_connection_limit_reached")
        assert close_code(ws) == 1001
    eventually(lambda: following.places.taken == 0, 5)
    assert alice.get(f"/v1/jobs/{worker.job.id}").json["cancel_requested_at"] is None


def hear_until_error(ws):
    while (event := hear(ws))["type"] != "error":
        pass
    return event


# Who leaves


@pytest.mark.parametrize(
    ("extra", "cancels"), [({}, True), ({"metadata": {"on_disconnect": "continue"}}, False)]
)
def test_a_client_that_goes_away_cancels_what_runs_unless_it_is_to_go_on(
    open_socket, pick_up, alice, extra, cancels
):
    with open_socket() as ws:
        create(ws, **extra)
        first = pick_up()
        hear(ws)
        create(ws, **extra)
    if cancels:
        eventually(lambda: alice.get(f"/v1/jobs/{first.job.id}").json["cancel_requested_at"], 3)
    else:
        first.say("still here")
        first.complete()
        job = alice.get(f"/v1/jobs/{first.job.id}").json
        assert (job["status"], job["cancel_requested_at"]) == ("completed", None)
    assert len(jobs()) == 1, "what waited in the lane never began"


def test_a_client_that_does_not_read_is_dropped_and_cancels_what_runs(address, alice, pick_up):
    event = orjson.dumps({"type": "response.create", **SAY})
    with closing(open_raw_websocket(address, "/v1/responses", alice.secret)) as sock:
        handshake = b""
        while not handshake.endswith(b"\r\n\r\n"):
            handshake += sock.recv(1)
        sock.sendall(b"\x81%c\0\0\0\0%b" % (0x80 | len(event), event))
        worker = pick_up()
        for _ in range(40):
            worker.say("x" * 20_000)
        eventually(lambda: alice.get(f"/v1/jobs/{worker.job.id}").json["cancel_requested_at"], 8)
        data = read_all(sock)
    assert len(data) < 400_000
    assert [message["sequence_number"] for message in whole_messages(data)][:5] == [0, 1, 2, 3, 4]


def test_a_stopping_server_lets_what_is_stored_go_on(services, alice, open_socket, pick_up):
    with running_gunicorn(services) as (address, pid):
        eventually(lambda: is_served(address, alice))
        with open_socket(address=address) as ws:
            create(ws, stream_id="kept")
            kept = pick_up()
            create(ws, stream_id="unstored", store=False)
            unstored = pick_up()
            for _ in range(4):
                hear(ws)
            os.kill(pid, signal.SIGTERM)
            errors = [hear(ws) for _ in range(2)]
            assert {event["error"]["code"] for event in errors} == {"server_stopping"}
            assert {event["stream_id"] for event in errors} == {"kept", "unstored"}
            assert close_code(ws) == 1012
        eventually(lambda: alice.get(f"/v1/jobs/{unstored.job.id}").json["cancel_requested_at"], 5)
        assert alice.get(f"/v1/jobs/{kept.job.id}").json["cancel_requested_at"] is None


def test_an_idle_connection_is_kept_alive_by_pings(open_socket, pick_up):
    with open_socket() as ws:
        # The server pings every second: the client's answers are all it hears.
        with pytest.raises(TimeoutError):
            ws.recv(timeout=4)
        create(ws)
        pick_up().complete()
        hear_until(ws, "response.completed")
