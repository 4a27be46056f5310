"""`/v1/queues`, and what a waiting job says of its place."""

from datetime import timedelta

import pytest
from sqlalchemy import text, update

from app import clock
from app.api import queues
from app.db import transaction
from app.jobs.tables import Job
from app.line.lines import forget_lines
from app.line.tables import LineState
from app.redis import client
from config.queues import Tier
from tests.integration.api.test_models import add_worker
from tests.integration.api.test_shapes import agrees  # noqa: F401 - a fixture
from tests.integration.line.lines import keep_line


@pytest.fixture(autouse=True)
def _fresh(clean):
    forget_lines()
    yield
    forget_lines()


@pytest.fixture
def without_redis(monkeypatch):
    """Nobody answers where Redis should be."""
    import redis

    away = redis.Redis(host="127.0.0.1", port=9, socket_connect_timeout=0.2)
    monkeypatch.setattr(queues, "quick_client", lambda: away)


def change(job_id, **columns):
    with transaction() as session:
        session.execute(update(Job).where(Job.id == job_id).values(columns))


def wait(alice, **body):
    """The id of a job that waits and is on its way to nobody."""
    job_id = alice.submit(**body).json["id"]
    change(job_id, placed_on=None, rung_at=None)
    return job_id


def line(alice, model, tier):
    (found,) = (q for q in alice.get(f"/v1/queues/{model}").json["data"] if q["tier"] == tier)
    return found


def test_every_model_and_tier_has_a_line_though_nothing_was_measured(alice, agrees):  # noqa: F811
    page = agrees(alice.get("/v1/queues"), "get", "/v1/queues").json
    assert {(q["model"], q["tier"]) for q in page["data"]} == {
        (model, tier) for model in ("smollm2", "simulated", "faulty") for tier in ("interactive", "batch")
    }
    found = line(alice, "smollm2", "batch")
    assert found == {
        "model": "smollm2",
        "tier": "batch",
        "state": "open",
        "depth": {"jobs": 0, "tokens": 0},
        "oldest_wait_seconds": None,
        "drain": {"jobs_per_second": 0.0, "tokens_per_second": 0.0},
        "shedding": {"is_on": False, "transitions": 0},
        "running": 0,
        "slots": 0,
        "free_slots": 0,
        "workers": 0,
        "estimate_error_seconds": None,
        "measured_at": None,
        "completion_windows": [
            {"window": "soonest", "price_factor": 0.8},
            {"window": "1h", "price_factor": 0.75},
            {"window": "2h", "price_factor": 0.7},
            {"window": "8h", "price_factor": 0.6},
            {"window": "24h", "price_factor": 0.5},
        ],
        "limits": {"max_jobs": 1_000_000, "max_tokens": 1_000_000_000, "max_wait_seconds": 172_800},
    }


def test_a_measured_line_shows_what_was_measured(alice, make_account, agrees):  # noqa: F811
    add_worker("one", 4)
    add_worker("two", 8)
    keep_line(
        tier=Tier.BATCH,
        accounts={make_account().id: (40, 4000), make_account("bob").id: (2, 200)},
        state=LineState.PAUSED,
        oldest_at=clock.now() - timedelta(seconds=90),
        running=7,
        free_slots=3,
        estimate_error_seconds=1.5,
    )
    client().hset("lh:line:faulty:batch", mapping={"shedding": "1", "transitions": 3})
    found = line(alice, "faulty", "batch")
    agrees(alice.get("/v1/queues/faulty"), "get", "/v1/queues/{name}")
    assert found["oldest_wait_seconds"] == pytest.approx(90, abs=2)
    assert found["measured_at"] == pytest.approx(clock.now().timestamp(), abs=5)
    assert (found["state"], found["depth"]) == ("paused", {"jobs": 42, "tokens": 4200})
    assert found["drain"] == {"jobs_per_second": 1.0, "tokens_per_second": 100.0}
    assert (found["running"], found["free_slots"], found["slots"], found["workers"]) == (7, 3, 12, 2)
    assert (found["estimate_error_seconds"], found["shedding"]) == (1.5, {"is_on": True, "transitions": 3})


def test_without_redis_the_lines_are_shown_and_shedding_is_not_known(alice, without_redis, agrees):  # noqa: F811
    keep_line(accounts={"acct_x": (3, 30)})
    agrees(alice.get("/v1/queues"), "get", "/v1/queues")
    found = line(alice, "faulty", "interactive")
    assert (found["shedding"], found["depth"]["jobs"]) == (None, 3)


def test_an_unknown_model_has_no_line(alice):
    answer = alice.get("/v1/queues/org/unknown")
    assert (answer.status_code, answer.json["error"]["code"]) == (404, "model_not_found")


def test_a_waiting_job_says_where_it_stands_and_when_it_starts(alice, make_account):
    add_worker("one", 4)
    jobs = [wait(alice, max_output_tokens=100) for _ in range(3)]
    for job_id in jobs:
        change(job_id, reserved_tokens=100)
    keep_line(accounts={make_account().id: (3, 300)})
    job = alice.get(f"/v1/jobs/{jobs[2]}").json
    assert job["queue"]["position"] == 3
    assert job["queue"]["estimated_start_at"] - clock.now().timestamp() == pytest.approx(3, abs=2)
    assert job["queue"]["estimated_finish_at"] - job["queue"]["estimated_start_at"] == pytest.approx(4, abs=1)
    assert job["waiting"] == {"reason": "in_line", "message": "2 jobs are ahead; about 3 s."}


def test_a_submission_is_told_its_place(alice, make_account):
    keep_line(tier=Tier.BATCH)
    answers = [alice.submit(tier="batch").json["queue"] for _ in range(3)]
    assert [queue["position"] for queue in answers] == [1, 2, 3]


def test_a_list_does_not_look_places_up(alice):
    wait(alice)
    (job,) = alice.get("/v1/jobs").json["data"]
    assert (job["queue"], job["waiting"]["reason"]) == (None, "no_worker")


def test_a_job_that_runs_or_ended_has_no_place(alice, work):
    job_id = wait(alice)
    worker = work(job_id)
    assert alice.get(f"/v1/jobs/{job_id}").json["queue"] is None
    worker.complete()
    assert alice.get(f"/v1/jobs/{job_id}").json["queue"] is None


def test_a_job_shows_what_was_agreed(alice):
    job_id = wait(alice, completion_window="1h", session_id="s", tier="batch")
    change(job_id, preemptions=2)
    job = alice.get(f"/v1/jobs/{job_id}").json
    assert (job["completion_window"], job["session_id"], job["preemptions"]) == ("1h", "s", 2)
    assert (job["price_factor"], job["due_at"]) == (0.75, pytest.approx(job["created_at"] + 3600, abs=1))


def test_a_job_in_a_paused_line_says_so(alice):
    add_worker("one", 4)
    job_id = wait(alice)
    keep_line(state=LineState.PAUSED, free_slots=4)
    job = alice.get(f"/v1/jobs/{job_id}").json
    assert job["waiting"]["reason"] == "paused"
    assert "paused the interactive line of 'faulty'" in job["waiting"]["message"]
    assert job["queue"] == {"position": 1, "estimated_start_at": None, "estimated_finish_at": None}


def test_a_job_that_is_tried_again_later_says_when(alice):
    add_worker("one", 4)
    job_id = wait(alice)
    change(job_id, available_at=clock.now() + timedelta(seconds=30))
    waiting = alice.get(f"/v1/jobs/{job_id}").json["waiting"]
    assert waiting["reason"] == "retry_delay"
    assert waiting["message"] in {"It is tried again in 30 s.", "It is tried again in 29 s."}


def test_a_page_of_events_says_where_a_waiting_job_stands(alice, work):
    job_id = wait(alice)
    keep_line(accounts={"acct_x": (3, 30)})
    events = f"/v1/jobs/{job_id}/events"
    assert alice.get(events).json["queue"]["position"] == 1
    assert alice.get(f"{events}?after=1&wait=0.1").json["queue"]["position"] == 1
    worker = work(job_id)
    assert alice.get(events).json["queue"] is None
    worker.complete()
    assert alice.get(events).json["queue"] is None


def test_a_measure_that_cannot_be_read_spoils_no_page_of_events(alice):
    job_id = wait(alice)
    with transaction() as session:
        session.execute(
            text("INSERT INTO lines (model, tier, measured) VALUES ('faulty', 'batch', '{\"new\": 1}')")
        )
    forget_lines()
    answer = alice.get(f"/v1/jobs/{job_id}/events")
    assert (answer.status_code, answer.json["queue"], len(answer.json["data"])) == (200, None, 1)
