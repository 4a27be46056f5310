"""What only the real server shows: slow readers, readers that vanish, stopping, many followers at once."""

import base64
import os
import signal
import socket
import threading
import time

import httpx
import orjson
import psutil
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from app.db import transaction
from app.jobs.log import Segment, store_segments
from tests.eventually import eventually
from tests.following import StrictFollower
from tests.integration.api.conftest import running_gunicorn
from tests.integration.api.test_events import Listener

SEGMENTS, SEGMENT_CHARS = 2000, 5000


@pytest.fixture
def long_job(alice, work):
    """A job in progress whose log is 10 MB."""
    job = alice.submit().json
    worker = work(job["id"])
    for start in range(0, SEGMENTS, 500):
        with transaction() as session:
            store_segments(session, [segment_of(worker.job, start + n) for n in range(500)])
    worker.seq += SEGMENTS
    worker.offset = SEGMENTS * SEGMENT_CHARS
    return job["urls"], worker


def segment_of(job, number):
    return Segment(
        job_id=job.id,
        lease_id=job.lease_id,
        first_seq=3 + number,
        seq=3 + number,
        attempt=1,
        char_offset=number * SEGMENT_CHARS,
        text=f"{number:<{SEGMENT_CHARS}}",
        ends=[SEGMENT_CHARS],
        token_ids=[1],
    )


def open_raw(address, path, key, *, window=8192, **headers):
    """A connection with a small window, after the request and before any reading."""
    host, _, port = address.partition(":")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    sock.settimeout(20)
    sock.connect((host, int(port)))
    lines = [f"GET {path} HTTP/1.1", f"Host: {address}", f"Authorization: Bearer {key}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    sock.sendall("\r\n".join([*lines, "", ""]).encode())
    return sock


def open_raw_websocket(address, path, key, **options):
    handshake = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": base64.b64encode(os.urandom(16)).decode(),
    }
    return open_raw(address, path, key, **handshake, **options)


def read_all(sock):
    data = bytearray()
    try:
        while piece := sock.recv(65_536):
            data += piece
    except ConnectionResetError:
        pass
    return bytes(data)


def whole_messages(data):
    """The text messages in a stream of frames that may break off in the middle of one."""
    while len(data) >= 2:
        assert data[0] & 0x8F in {0x81, 0x88, 0x89}, f"not the beginning of a frame: {data[:20]!r}"
        size, start = data[1], 2
        if size == 126:
            size, start = int.from_bytes(data[2:4], "big"), 4
        elif size == 127:
            size, start = int.from_bytes(data[2:10], "big"), 10
        if len(data) < start + size:
            return
        if data[0] == 0x81:
            yield orjson.loads(data[start : start + size])
        data = data[start + size :]


def worker_of(pid):
    (worker,) = psutil.Process(pid).children()
    return worker


def established(pid):
    """Connections that the server holds open."""
    return [c for c in worker_of(pid).net_connections("tcp") if c.status == "ESTABLISHED" and c.laddr]


@pytest.mark.parametrize("kind", ["websocket", "events"])
def test_a_reader_that_does_not_read_is_dropped_and_costs_little(gunicorn, long_job, alice, kind):
    address, pid = gunicorn
    urls, _ = long_job
    httpx.get(f"http://{address}{urls['self']}", headers=alice.headers, trust_env=False)
    before = worker_of(pid).memory_info().rss
    socks = [
        open_raw_websocket(address, urls["stream"], alice.secret)
        if kind == "websocket"
        else open_raw(address, urls["events"], alice.secret, Accept="text/event-stream")
        for _ in range(4)
    ]
    mine = {sock.getsockname()[1] for sock in socks}
    eventually(lambda: len([c for c in established(pid) if c.raddr.port in mine]) == 4)
    started = time.monotonic()
    assert httpx.get(f"http://{address}/v1/models", headers=alice.headers, trust_env=False).is_success
    assert time.monotonic() - started < 1.5
    eventually(lambda: not [c for c in established(pid) if c.raddr.port in mine], 10, "dropped")
    grown = worker_of(pid).memory_info().rss - before
    assert grown < 60e6, f"{grown / 1e6:.0f} MB"
    for sock in socks:
        data = read_all(sock)
        sock.close()
        assert len(data) < 2e6
        assert b"job.completed" not in data
        if kind == "websocket":
            seen = StrictFollower()
            for frame in whole_messages(data.partition(b"\r\n\r\n")[2]):
                seen.take(frame)
            assert seen.cursor > 2


def test_a_slow_but_steady_reader_gets_everything(gunicorn, long_job, alice):
    address, _ = gunicorn
    urls, worker = long_job
    worker.complete()
    sock = open_raw_websocket(address, urls["stream"], alice.secret, window=65_536)
    data = bytearray()
    while piece := sock.recv(262_144):
        data += piece
        time.sleep(0.001)
    sock.close()
    seen = StrictFollower()
    for frame in whole_messages(bytes(data).partition(b"\r\n\r\n")[2]):
        seen.take(frame)
    assert (len(seen.text), seen.last["type"]) == (SEGMENTS * SEGMENT_CHARS, "job.completed")


@pytest.mark.parametrize("kind", ["websocket", "events"])
def test_a_reader_that_leaves_is_noticed_within_seconds(gunicorn, alice, work, kind):
    address, pid = gunicorn
    job = alice.submit().json
    work(job["id"])
    sock = (
        open_raw_websocket(address, job["urls"]["stream"], alice.secret)
        if kind == "websocket"
        else open_raw(address, job["urls"]["events"], alice.secret, Accept="text/event-stream")
    )
    sock.recv(10)
    port = sock.getsockname()[1]
    sock.close()
    eventually(
        lambda: not [c for c in worker_of(pid).net_connections("tcp") if c.raddr and c.raddr.port == port], 3
    )


def test_a_client_that_answers_no_ping_is_dropped(gunicorn, alice, work):
    address, _ = gunicorn
    job = alice.submit().json
    work(job["id"])
    sock = open_raw_websocket(address, job["urls"]["stream"], alice.secret)
    started = time.monotonic()
    data = read_all(sock)
    sock.close()
    assert 2 < time.monotonic() - started < 8
    assert b"\x89\x00" in data


def test_a_quiet_stream_is_kept_alive_and_followed_to_the_end(gunicorn, alice, work):
    address, _ = gunicorn
    job = alice.submit().json
    worker = work(job["id"])
    listener = Listener(address, job["urls"]["events"], alice.secret)
    with connect(f"ws://{address}{job['urls']['stream']}", additional_headers=alice.headers, proxy=None) as ws:
        eventually(lambda: len(listener.comments) >= 3, 10, "pings")
        worker.say("after a while")
        worker.complete()
        seen = StrictFollower().take_all(message.encode() for message in ws)
    assert seen.text == listener.ended().text == "after a while"


def test_forty_followers_get_everything_once_while_the_job_is_written(gunicorn, alice, work):
    address, _ = gunicorn
    job = alice.submit().json
    worker = work(job["id"])
    results = {}

    def run(number):
        path = f"{job['urls']['stream']}"
        with connect(f"ws://{address}{path}", additional_headers=alice.headers, proxy=None) as ws:
            results[number] = StrictFollower().take_all(message.encode() for message in ws)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for number in range(300):
        worker.say(f"{number} ")
        if number % 29 == 0:
            worker.store()
    worker.complete()
    for thread in threads:
        thread.join(30)
    whole = "".join(f"{number} " for number in range(300))
    assert [seen.text for seen in results.values()] == [whole] * 40


def test_a_stopping_server_sends_its_followers_elsewhere_within_seconds(services, alice, work):
    job = alice.submit().json
    worker = work(job["id"])
    worker.say("so far")
    worker.store()
    with running_gunicorn(services) as (address, pid):
        listener = Listener(address, job["urls"]["events"], alice.secret)
        url = f"ws://{address}{job['urls']['stream']}"
        with connect(url, additional_headers=alice.headers, proxy=None) as ws:
            for _ in range(3):
                ws.recv(timeout=5)
            eventually(lambda: listener.seen.cursor == 3)
            os.kill(pid, signal.SIGTERM)
            started = time.monotonic()
            with pytest.raises(ConnectionClosed) as closed:
                ws.recv(timeout=5)
        assert closed.value.rcvd.code == 1012
        listener.ended()
        assert time.monotonic() - started < 2.5
        assert any("connect again" in comment for comment in listener.comments)
        eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie", 10)


def test_bodies_sent_in_chunks_are_read_and_bounded(gunicorn, alice):
    address, _ = gunicorn
    url = f"http://{address}/v1/jobs"
    body = orjson.dumps({"model": "faulty", "input": "x"})
    answer = httpx.post(url, content=iter([body[:5], body[5:]]), headers=alice.headers, trust_env=False)
    assert answer.status_code == 202
    answer = httpx.post(url, content=iter([b"x" * 100_000] * 30), headers=alice.headers, trust_env=False)
    assert answer.status_code == 413, answer.text


def test_a_ready_server_is_ready(gunicorn):
    assert httpx.get(f"http://{gunicorn[0]}/readyz", trust_env=False).json()["status"] == "ok"
