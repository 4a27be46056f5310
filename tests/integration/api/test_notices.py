"""`queue.moved` on the streams of waiting jobs."""

import orjson
import pytest
from sqlalchemy import update
from sqlalchemy.exc import OperationalError

from app import clock
from app.api import notices
from app.api.notices import LEAST_SECONDS, LOOKS_A_SECOND, Board, Standing
from app.db import transaction
from app.jobs import lifecycle
from app.jobs.lifecycle import Prefill
from app.jobs.states import RequeueReason
from app.jobs.tables import Job
from app.line.lines import forget_lines
from app.streams.announce import announce
from app.streams.frames import of_event
from tests.eventually import eventually
from tests.integration.api.test_events import Listener
from tests.integration.api.test_stream import follow, open_stream  # noqa: F401 - a fixture
from tests.integration.line.lines import keep_line


@pytest.fixture(autouse=True)
def _fresh(clean, monkeypatch):
    monkeypatch.setattr(notices, "board", Board())
    forget_lines()
    yield
    forget_lines()


@pytest.fixture
def wait(alice):
    """`wait()` is the id of a job that is on its way to nobody."""

    def make():
        job_id = alice.submit(max_output_tokens=10).json["id"]
        with transaction() as session:
            session.execute(
                update(Job).where(Job.id == job_id).values(placed_on=None, rung_at=None, reserved_tokens=100)
            )
        return job_id

    return make


@pytest.fixture
def looks(monkeypatch):
    """The job ids that are looked up, as they are."""
    seen, look_up = [], notices._look_up

    def noting(job_id):
        seen.append(job_id)
        return look_up(job_id)

    monkeypatch.setattr(notices, "_look_up", noting)
    return seen


def test_a_follower_of_a_waiting_job_is_told_at_once_and_again_when_it_moved(
    alice, wait, work, threaded_server
):
    first, job_id = wait(), wait()
    keep_line()
    listener = Listener(threaded_server, f"/v1/jobs/{job_id}/events", alice.secret)
    (notice,) = eventually(lambda: listener.seen.notices, 1)
    assert listener.seen.cursor == 1
    assert (notice["type"], notice["job_id"], notice["position"]) == ("queue.moved", job_id, 2)
    assert notice["estimated_start_at"] > clock.now().timestamp() - 1
    assert set(notice) == {"type", "job_id", "position", "estimated_start_at", "estimated_finish_at", "at"}
    work(first).complete()
    eventually(lambda: len(listener.seen.notices) > 1, 6)
    assert listener.seen.notices[1]["position"] == 1
    work(job_id).complete()
    assert listener.ended().last["type"] == "job.completed"
    assert [event for event in listener.seen.events if event == "queue.moved"] == []


def test_a_notice_has_no_id_so_that_a_browser_goes_on_where_the_log_was(alice, wait, threaded_server):
    import httpx

    job_id = wait()
    headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {alice.secret}"}
    url = f"http://{threaded_server}/v1/jobs/{job_id}/events"
    with httpx.stream("GET", url, headers=headers, timeout=10, trust_env=False) as response:
        lines = iter(response.iter_lines())
        block = []
        for line in lines:
            block = [*block, line] if line else []
            if line.startswith("data:") and "queue.moved" in line:
                break
    assert [line.partition(":")[0] for line in block] == ["event", "data"]


def test_a_websocket_gets_them_too_from_whatever_cursor(wait, work, open_stream):  # noqa: F811
    job_id = wait()
    with open_stream(f"/v1/jobs/{job_id}/stream?after=1") as ws:
        notice = orjson.loads(ws.recv(timeout=1))
        assert (notice["type"], notice["position"]) == ("queue.moved", 1)
        work(job_id).complete()
        types = [orjson.loads(ws.recv(timeout=5))["type"] for _ in range(2)]
    assert types == ["job.in_progress", "job.completed"]


def test_a_job_that_runs_is_not_looked_up(alice, wait, work, threaded_server, looks):
    job_id = wait()
    worker = work(job_id)
    listener = Listener(threaded_server, f"/v1/jobs/{job_id}/events", alice.secret, after=0)
    worker.say("text")
    eventually(lambda: listener.seen.text == "text")
    worker.complete()
    listener.ended()
    assert (listener.seen.notices, len(looks)) == ([], 1)


def test_a_job_that_comes_back_into_the_line_is_told_of_again(alice, wait, work, threaded_server):
    job_id = wait()
    listener = Listener(threaded_server, f"/v1/jobs/{job_id}/events", alice.secret)
    eventually(lambda: listener.seen.notices, 2)
    job = work(job_id).job
    eventually(lambda: "job.in_progress" in listener.seen.events)
    assert len(listener.seen.notices) == 1
    with transaction() as session:
        back = lifecycle.hand_back(session, job_id, job.lease_id, Prefill(), RequeueReason.PREEMPTED)
    announce([back.event])
    eventually(lambda: len(listener.seen.notices) == 2, 2)
    work(job_id).complete()
    listener.ended()


def test_followers_of_one_job_share_a_look(wait, looks):
    job_id = wait()
    told = []
    for _ in range(50):
        standing = Standing(job_id, 1).__enter__()
        told += standing.news()
    assert (len(told), looks) == (50, [job_id])


def test_a_process_looks_up_only_so_many_places_at_once(wait, looks):
    jobs = [wait() for _ in range(int(LOOKS_A_SECOND) + 10)]
    told = [standing.news() for standing in (Standing(job_id, 1).__enter__() for job_id in jobs)]
    assert LOOKS_A_SECOND <= len(looks) < len(jobs)
    assert sum(map(bool, told)) == len(looks)


def test_a_look_is_not_repeated_sooner_than_it_may(wait, looks, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(notices.clock, "monotonic", lambda: now[0])
    monkeypatch.setattr(notices, "board", Board())
    job_id = wait()
    with Standing(job_id, 1) as standing:
        assert standing.news()
        now[0] += LEAST_SECONDS * 0.9
        assert standing.news() == []
        assert len(looks) == 1
        now[0] += LEAST_SECONDS * 0.2
        assert standing.news() == []  # nothing moved
    assert len(looks) == 2


def test_a_database_that_fails_a_notice_ends_no_stream(alice, wait, work, threaded_server, monkeypatch):
    def fail(job_id):
        raise OperationalError("SELECT", {}, Exception("gone"))

    monkeypatch.setattr(notices, "_look_up", fail)
    job_id = wait()
    listener = Listener(threaded_server, f"/v1/jobs/{job_id}/events", alice.secret)
    eventually(lambda: listener.seen.cursor == 1)
    work(job_id).complete()
    assert listener.ended().last["type"] == "job.completed"
    assert listener.seen.notices == []


def test_what_was_followed_is_forgotten(wait, alice, work, threaded_server):
    job_id = wait()
    listener = Listener(threaded_server, f"/v1/jobs/{job_id}/events", alice.secret)
    eventually(lambda: notices.board._jobs)
    work(job_id).complete()
    listener.ended()
    assert notices.board._jobs == {}


def test_a_look_at_a_job_that_ran_says_nothing_of_one_that_came_back(wait, work):
    job_id = wait()
    notices.board.join(job_id)  # another follower
    job = work(job_id).job
    assert notices.board.look(job_id, clock.monotonic()).place is None
    with transaction() as session:
        back = lifecycle.hand_back(session, job_id, job.lease_id, Prefill(), RequeueReason.PREEMPTED)
    with Standing(job_id, 0) as standing:
        standing.note([of_event(back.event)])
        assert len(standing.news()) == 1
