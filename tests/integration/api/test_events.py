"""`GET /v1/jobs/{id}/events`: JSON pages, and server-sent events."""

import threading
import time

import httpx
import orjson
import pytest

from app.api import following
from app.db import transaction
from app.jobs import lifecycle, rescue
from app.jobs.lifecycle import Prefill
from app.jobs.states import IncompleteReason
from app.streams.announce import announce
from tests.eventually import eventually
from tests.following import StrictFollower


def sent_events(lines):
    """(id, event, data) of each event; comments by their text."""
    fields = {}
    for line in lines:
        if line.startswith(":"):
            yield line
        elif line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            if "data" in fields:
                yield int(fields.get("id", 0)), fields["event"], orjson.loads(fields["data"])
            fields = {}


class Listener:
    """Follows over server-sent events on a thread of its own."""

    def __init__(self, server, path, key, after=0, text="", **headers):
        self.seen = StrictFollower(cursor=after, text=text)
        self.comments = []
        self.status = None
        self.has_ended = False
        sent = {"Accept": "text/event-stream", "Authorization": f"Bearer {key}", **headers}
        self._thread = threading.Thread(target=self._run, args=(f"http://{server}{path}", sent), daemon=True)
        self._thread.start()

    def _run(self, url, headers):
        with httpx.stream("GET", url, headers=headers, timeout=30, trust_env=False) as response:
            self.status, self.headers = response.status_code, response.headers
            for item in sent_events(response.iter_lines()):
                if isinstance(item, str):
                    self.comments.append(item)
                else:
                    seq, kind, frame = item
                    assert (seq, kind) == (frame.get("seq", 0), frame["type"])
                    self.seen.take(frame)
        self.has_ended = True

    def ended(self):
        self._thread.join(10)
        assert self.has_ended
        return self.seen


@pytest.fixture
def running(alice, work):
    """A job in progress: its paths, and its worker."""
    job = alice.submit().json
    return job["urls"], work(job["id"])


def test_a_page_has_events_and_says_where_to_go_on(alice, running):
    urls, worker = running
    worker.say("Hello ")
    worker.store()
    worker.say("world")
    page = alice.get(urls["events"]).json
    assert [event["type"] for event in page["data"]] == [
        "job.queued",
        "job.in_progress",
        "output.delta",
        "output.delta",
    ]
    assert page["object"] == "list"
    assert (page["next_after"], page["has_more"]) == (4, True)
    assert page["data"][0]["status"] == "queued"


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_follow_each_other_to_the_terminal_event(alice, running, limit):
    urls, worker = running
    for word in "a stored answer":
        worker.say(word)
        if word == " ":
            worker.store()
    worker.complete()
    seen, after = StrictFollower(), 0
    while True:
        page = alice.get(f"{urls['events']}?after={after}&limit={limit}").json
        assert len(page["data"]) <= limit
        for frame in page["data"]:
            seen.take(frame)
        after = page["next_after"]
        if not page["has_more"]:
            break
    assert seen.text == "a stored answer"
    assert seen.last["type"] == "job.completed"
    assert alice.get(f"{urls['events']}?after={after}").json == {
        "object": "list",
        "data": [],
        "next_after": after,
        "has_more": False,
        "queue": None,
    }


def test_a_page_can_be_waited_for(alice, running):
    urls, worker = running
    threading.Timer(0.5, worker.say, ("soon",)).start()
    started = time.monotonic()
    page = alice.get(f"{urls['events']}?after=2&wait=20").json
    assert time.monotonic() - started < 1.5
    assert [event["delta"] for event in page["data"]] == ["soon"]


@pytest.mark.parametrize(
    ("query", "param"), [("after=-1", "after"), ("after=x", "after"), ("limit=0", "limit"), ("wait=61", "wait")]
)
def test_a_bad_parameter_is_refused_by_name(alice, running, query, param):
    answer = alice.get(f"{running[0]['events']}?{query}")
    assert (answer.status_code, answer.json["error"]["param"]) == (400, param)


@pytest.mark.parametrize("last", ["x", "-1", "1.5"])
def test_a_bad_last_event_id_is_refused(alice, running, last):
    headers = {"Accept": "text/event-stream", "Last-Event-ID": last}
    assert alice.get(running[0]["events"], headers=headers).status_code == 400


def test_a_stream_replays_follows_and_ends(alice, running, threaded_server):
    urls, worker = running
    worker.say("stored ")
    worker.store()
    worker.say("tail ")
    listener = Listener(threaded_server, urls["events"], alice.secret)
    eventually(lambda: listener.seen.text == "stored tail ")
    worker.say("live")
    eventually(lambda: listener.seen.text == "stored tail live", 1)
    worker.complete()
    assert listener.ended().events == ["job.queued", "job.in_progress", "job.completed"]
    assert listener.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert listener.headers["x-accel-buffering"] == "no"
    assert listener.headers["cache-control"] == "no-store"
    assert listener.headers["x-request-id"]


@pytest.mark.parametrize("after", range(8))
def test_a_stream_resumes_anywhere_by_last_event_id(alice, running, threaded_server, after):
    urls, worker = running
    for word in ("one ", "two ", "three "):
        worker.say(word)
    worker.store()
    worker.say("four ")
    path = f"{urls['events']}?after=1"  # a browser repeats the URL that it began with
    headers = {"Last-Event-ID": str(after)} if after else {}
    seen = "".join(["one ", "two ", "three ", "four "][: max(0, after - 2)])
    listener = Listener(threaded_server, path, alice.secret, after or 1, seen, **headers)
    worker.say("five")
    worker.complete()
    listener.ended()
    assert listener.seen.last["type"] == "job.completed"
    assert listener.seen.cursor == 8


def test_a_browser_that_asks_again_after_the_end_is_told_to_stop(alice, running):
    urls, worker = running
    worker.complete()
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "3"}
    assert alice.get(urls["events"], headers=headers).status_code == 204


def cancel(session, job):
    return lifecycle.cancel(session, job.id, job.lease_id, Prefill())


def fail(session, job):
    return lifecycle.fail(session, job.id, job.lease_id, Prefill(), "x", "y")


def stop_early(session, job):
    return lifecycle.stop_early(session, job.id, job.lease_id, Prefill(), IncompleteReason.TOTAL_TIMEOUT)


@pytest.mark.parametrize("verb", [cancel, fail, stop_early])
def test_a_stream_ends_with_each_terminal_status(alice, running, threaded_server, verb):
    urls, worker = running
    listener = Listener(threaded_server, urls["events"], alice.secret)
    eventually(lambda: listener.seen.cursor == 2)
    with transaction() as session:
        move = verb(session, worker.job)
    announce([move.event])
    assert listener.ended().last["type"] == move.event.type


def test_a_stream_ends_when_a_queued_job_expires(alice, threaded_server):
    job = alice.submit(expires_after_seconds=1).json
    listener = Listener(threaded_server, job["urls"]["events"], alice.secret)
    eventually(lambda: listener.seen.cursor == 1)

    def expired():
        with transaction() as session:
            return rescue.expire(session, 10)

    eventually(expired)  # and nobody announces it
    assert listener.ended().last["status"] == "expired"


def test_a_stream_ends_when_its_job_is_deleted(alice, threaded_server, monkeypatch):
    job = alice.submit().json
    listener = Listener(threaded_server, job["urls"]["events"], alice.secret, after=0)
    eventually(lambda: listener.seen.cursor == 1)
    alice.post(job["urls"]["cancel"])
    assert listener.ended().last["status"] == "cancelled"
    alice("DELETE", job["urls"]["self"])
    headers = {"Accept": "text/event-stream"}
    assert alice.get(job["urls"]["events"], headers=headers).status_code == 404


def test_a_reader_that_leaves_a_quiet_stream_frees_its_place_long_before_the_next_ping(
    alice, running, threaded_server
):
    headers = {**alice.headers, "Accept": "text/event-stream"}
    url = f"http://{threaded_server}{running[0]['events']}"
    with httpx.stream("GET", url, headers=headers, trust_env=False) as response:
        assert any("job.in_progress" in line for line in response.iter_lines())
        assert following.places.taken == 1
    eventually(lambda: following.places.taken == 0, 5)


def test_line_separators_in_output_do_not_cut_an_event(alice, running, threaded_server):
    urls, worker = running
    worker.say("a\u2028b\u0085c\nd\r\ne")
    worker.complete()
    assert Listener(threaded_server, urls["events"], alice.secret).ended().text == "a\u2028b\u0085c\nd\r\ne"
