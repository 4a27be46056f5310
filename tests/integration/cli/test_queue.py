"""`longhaul queue` on a real Postgres."""

from datetime import timedelta

import pytest
from sqlalchemy import update

from app import clock
from app.db import engine, transaction
from app.dispatch import WAKE_CHANNEL
from app.jobs.queries import find_job
from app.jobs.tables import Job
from app.line.tables import LineState
from app.redis import client
from config.queues import Tier
from tests.eventually import eventually
from tests.integration.cli.test_database import longhaul  # noqa: F401 - a fixture
from tests.integration.line.lines import keep_line


@pytest.fixture
def queue(longhaul):  # noqa: F811
    """`queue(*args)` runs the command; what it printed."""

    def run(*args, **environment):
        ran = longhaul("queue", *args, **environment)
        assert "Traceback" not in ran.stderr
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run


@pytest.fixture
def wait(make_job):
    def make(minutes_ago, account="alice"):
        at = clock.now() - timedelta(minutes=minutes_ago)
        job_id = make_job(account, tier="batch").id
        with transaction() as session:
            session.execute(
                update(Job).where(Job.id == job_id).values(order_at=at, created_at=at, reserved_tokens=100)
            )
        return job_id

    return make


def cells(printed):
    return [line.split("\t") for line in printed.splitlines()]


def state_of(tier):
    with engine().connect() as connection:
        return connection.exec_driver_sql(f"SELECT state FROM lines WHERE tier = '{tier}'").scalar()


def test_every_line_of_the_catalogue_is_shown(queue):
    keep_line(
        tier=Tier.BATCH,
        accounts={"acct_x": (48_000, 33_600_000), "acct_y": (12, 900)},
        oldest_at=clock.now() - timedelta(hours=2),
        state=LineState.PAUSED,
        free_slots=1,
        slots=32,
    )
    client().hset("lh:line:faulty:interactive", mapping={"shedding": "1"})
    header, *rows = cells(queue())
    assert header == ["model", "tier", "state", "waiting", "tokens", "oldest", "jobs/min", "free"]
    assert ["faulty", "batch", "paused", "48,012", "34M", "2 h", "60", "1/32"] in rows
    assert ["faulty", "interactive", "shedding", "0", "0", "-", "0", "0/0"] in rows
    assert len(rows) == 6


def test_it_is_said_where_nothing_was_measured_lately(longhaul):  # noqa: F811
    assert "Nothing was measured yet" in longhaul("queue").stderr
    keep_line(measured_at=clock.now() - timedelta(minutes=5))
    assert "Measured 5 min ago" in longhaul("queue").stderr
    keep_line()
    assert longhaul("queue").stderr == ""


def test_without_redis_the_lines_are_shown(longhaul):  # noqa: F811
    ran = longhaul("queue", REDIS_URL="redis://127.0.0.1:9/0")
    assert (ran.returncode, ran.stdout.count("\n")) == (0, 7)
    assert "Traceback" not in ran.stderr


def test_who_waits_is_listed_in_order(queue, wait):
    first, second, bob = wait(120), wait(60), wait(5, "bob")
    header, *rows = cells(queue("jobs", "faulty"))
    assert header == ["job", "tier", "place", "account", "age"]
    assert rows == [
        [first, "batch", "1", "alice", "2 h"],
        [bob, "batch", "2", "bob", "5 min"],
        [second, "batch", "3", "alice", "60 min"],
    ]
    assert len(cells(queue("jobs", "faulty", "--tier", "batch", "--limit", "1"))) == 2
    assert queue("jobs", "faulty", "--tier", "interactive") == ""


def test_a_line_is_paused_drained_and_resumed_and_the_dispatcher_is_woken(queue):
    listener = client().pubsub(ignore_subscribe_messages=True)
    listener.subscribe(WAKE_CHANNEL)
    printed = queue("pause", "faulty", "--tier", "batch")
    assert printed == "The batch line of faulty is paused; it was open.\n"
    assert (state_of("batch"), state_of("interactive")) == ("paused", None)
    assert eventually(lambda: listener.get_message(timeout=0.1), 2)
    listener.close()
    queue("drain", "faulty")
    assert (state_of("batch"), state_of("interactive")) == ("draining", "draining")
    printed = queue("drain", "faulty", REDIS_URL="redis://127.0.0.1:9/0")
    assert printed.splitlines() == [f"The {tier} line of faulty is draining; as before." for tier in Tier]
    queue("resume", "faulty")
    assert (state_of("batch"), state_of("interactive")) == ("open", "open")


def test_a_job_is_moved(queue, wait):
    first, second, third = wait(3), wait(2), wait(1)
    assert queue("move", third, "--front") == f"{third} now waits behind no other job of its account.\n"
    assert "behind 2 other jobs" in queue("move", third, "--back")
    assert "behind 1 other job " in queue("move", third, "--before", second)
    assert [row[0] for row in cells(queue("jobs", "faulty"))[1:]] == [first, third, second]


def test_a_job_changes_its_tier(queue, wait):
    job_id = wait(1)
    assert queue("tier", job_id, "interactive").startswith(f"{job_id} is interactive now")
    with transaction() as session:
        assert find_job(session, job_id).tier is Tier.INTERACTIVE
    assert queue("tier", job_id, "interactive") == f"{job_id} is interactive already.\n"


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["pause", "nonsense"], "The model 'nonsense' does not exist"),
        (["jobs", "nonsense"], "No model 'nonsense'"),
        (["move", "job_x", "--front"], "No job with id 'job_x'"),
        (["move", "job_x"], "Say where to"),
        (["move", "job_x", "--front", "--back"], "Say where to"),
        (["tier", "job_x", "batch"], "No job with id 'job_x'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(longhaul, args, sentence):  # noqa: F811
    ran = longhaul("queue", *args)
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert sentence in ran.stderr
