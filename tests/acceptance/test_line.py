"""What is promised of the line while its parts die under load: every job ends, once, with all its tokens."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import create_engine, text

from app.db import sqlalchemy_url
from tests.eventually import eventually

SLOTS = 8  # of the model `faulty`
TOKENS = 60
BATCH = {"tier": "batch", "input": "[[step_ms=10]] A line.", "max_output_tokens": TOKENS, "ignore_eos": True}
CHAT = {"input": "[[tokens=10]] A chat."}


@pytest.fixture
def submit(stack):
    def many(count, **body):
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda _: stack.submit(model="faulty", **body), range(count)))

    return many


def query(stack, statement, **values):
    engine = create_engine(sqlalchemy_url(stack.environment["DATABASE_URL"]))
    try:
        with engine.connect() as connection:
            return connection.execute(text(statement), values).all()
    finally:
        engine.dispose()


def assert_each_ended_once(stack, count):
    """Every job is terminal, has one terminal event, one final row in the ledger, and nothing reserved."""
    eventually(
        lambda: not query(stack, "SELECT id FROM jobs WHERE finished_at IS NULL LIMIT 1"), 120, stack.tail()
    )
    ends = query(stack, "SELECT status, output_tokens, count(*) FROM jobs WHERE tier = 'batch' GROUP BY 1, 2")
    assert ends == [("incomplete", TOKENS, count)]
    assert query(stack, "SELECT DISTINCT status FROM jobs WHERE tier = 'interactive'") in ([], [("completed",)])
    twice = """
        SELECT job_id FROM job_events WHERE type IN ('job.completed', 'job.incomplete')
        GROUP BY job_id HAVING count(*) <> 1
    """
    assert query(stack, twice) == []
    unsettled = """
        SELECT jobs.id FROM jobs LEFT JOIN usage ON usage.job_id = jobs.id GROUP BY jobs.id
        HAVING count(*) FILTER (WHERE is_final) <> 1 OR sum(usage.output_tokens) <> jobs.output_tokens
            OR sum(usage.input_tokens) <> jobs.input_tokens
    """
    assert query(stack, unsettled) == []
    eventually(lambda: not query(stack, "SELECT job_id FROM usage WHERE NOT is_booked"), 10, "all booked")


def test_a_chat_is_answered_at_once_behind_a_full_engine(stack, submit):
    stack.start("gpu")
    stack.wait_for_workers("faulty", 1)
    submit(5 * SLOTS, **BATCH)
    eventually(lambda: running(stack) == SLOTS, 20, "all slots are taken")
    for _ in range(5):
        began = time.monotonic()
        job = stack.ended(stack.submit(model="faulty", **CHAT))
        assert time.monotonic() - began < 0.5 * TOKENS * 0.01 * 5
        assert job["status"] == "completed"
    assert query(stack, "SELECT sum(preemptions) FROM jobs")[0][0] >= 1
    assert_each_ended_once(stack, 5 * SLOTS)


def running(stack):
    return query(stack, "SELECT count(*) FROM jobs WHERE status = 'in_progress'")[0][0]


def test_the_second_dispatcher_takes_over_within_seconds(stack, submit):
    stack.start("gpu")
    stack.wait_for_workers("faulty", 1)
    stack.start("dispatcher2")
    submit(4 * SLOTS, **BATCH)
    eventually(lambda: running(stack) == SLOTS, 20, "all slots are taken")
    stack.kill("dispatcher")
    assert_each_ended_once(stack, 4 * SLOTS)


def test_a_dispatcher_that_comes_back_finds_all_that_waits(stack, submit):
    stack.start("gpu")
    stack.wait_for_workers("faulty", 1)
    stack.kill("dispatcher")
    submit(2 * SLOTS, **BATCH)
    chats = submit(3, **CHAT)
    stack.start("dispatcher")
    for job_id in chats:
        assert stack.ended(job_id)["status"] == "completed"
    assert_each_ended_once(stack, 2 * SLOTS)


@pytest.mark.slow
def test_all_ends_once_when_a_worker_the_dispatcher_and_redis_fail_under_load(stack, submit):
    for name in ("gpu1", "gpu2", "dispatcher2"):
        stack.start(name)
    stack.wait_for_workers("faulty", 2)
    submit(10 * SLOTS, **BATCH)
    chats = submit(5, **CHAT)
    stack.kill("gpu1")
    chats += submit(5, **CHAT)
    stack.kill("dispatcher")
    chats += submit(5, **CHAT)
    from redis import Redis

    Redis.from_url(stack.environment["REDIS_URL"]).flushall()
    chats += submit(5, **CHAT)
    stack.start("gpu1")
    for job_id in chats:
        assert stack.ended(job_id)["status"] == "completed"
    assert_each_ended_once(stack, 10 * SLOTS)


def test_work_goes_to_the_worker_that_has_room(stack, submit):
    stack.start("gpu1", LONGHAUL_SLOTS="2")
    stack.start("gpu2", LONGHAUL_SLOTS="6")
    stack.wait_for_workers("faulty", 2)
    submit(8, **BATCH)
    held = "SELECT count(*) FROM jobs WHERE status = 'in_progress' GROUP BY worker_id ORDER BY 1"
    eventually(lambda: query(stack, held) == [(2,), (6,)], 20, "each has what it has room for")
    assert_each_ended_once(stack, 8)
