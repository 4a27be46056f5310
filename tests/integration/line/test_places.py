"""Where a job stands, from what waits in Postgres and what was measured."""

from datetime import timedelta

import pytest
from sqlalchemy import text, update

from app import clock
from app.db import engine, transaction
from app.jobs import lifecycle
from app.jobs.queries import find_job
from app.jobs.tables import Job
from app.line.lines import forget_lines
from app.line.places import _AHEAD, first_in_line, place_of
from config.queues import Tier
from tests.integration.line.lines import keep_line


@pytest.fixture(autouse=True)
def _fresh(clean):
    forget_lines()
    yield
    forget_lines()


@pytest.fixture
def wait(make_job):
    """`wait(minutes_ago, tokens=100, **columns)` gives the id of a job that waits since then."""

    def make(minutes_ago=0.0, tokens=100, account="alice", model="faulty", tier="batch", **columns):
        job = make_job(account, model=model, tier=tier)
        columns = {
            "order_at": clock.now() - timedelta(minutes=minutes_ago),
            "reserved_tokens": tokens,
            **columns,
        }
        with transaction() as session:
            session.execute(update(Job).where(Job.id == job.id).values(columns))
        return job.id

    return make


def place(job_id):
    with transaction() as session:
        return place_of(session, find_job(session, job_id))


def wait_seconds(found):
    return (found.estimated_start_at - clock.now()).total_seconds()


def test_what_stands_earlier_in_its_own_line_is_ahead_and_nothing_else(wait):
    wait(5)
    wait(4, is_long=True)
    wait(1)  # later
    wait(9, tier="interactive")
    wait(9, model="simulated")
    assert place(wait(2)).position == 3


def test_of_jobs_that_stand_at_the_same_time_the_older_is_ahead(wait):
    now = clock.now()
    jobs = [wait(order_at=now) for _ in range(3)]
    assert [place(job).position for job in jobs] == [1, 2, 3]


def test_without_a_measure_the_position_is_of_the_account_and_no_time_is_foretold(wait):
    wait(5)
    found = place(wait())
    assert (found.position, found.estimated_start_at, found.estimated_finish_at) == (2, None, None)


def test_the_tokens_ahead_and_the_other_accounts_say_when_it_starts(wait, make_account):
    alice, bob = make_account("alice").id, make_account("bob").id
    for minutes in (3, 2):
        wait(minutes, tokens=500)
    job_id = wait(tokens=200)
    keep_line(tier=Tier.BATCH, accounts={alice: (3, 1200), bob: (1000, 100_000)})
    found = place(job_id)
    assert found.position == 1 + 2 + 10
    # Two thousand tokens at a hundred a second, and then a slot for a usual job of a hundred.
    assert wait_seconds(found) == pytest.approx(21, abs=0.3)
    assert found.estimated_finish_at - found.estimated_start_at == timedelta(seconds=8)


def test_interactive_jobs_that_wait_are_ahead_of_a_batch_job(wait, make_account):
    job_id = wait()
    keep_line(tier=Tier.BATCH)
    keep_line(tier=Tier.INTERACTIVE, accounts={make_account("bob").id: (7, 700)})
    assert place(job_id).position == 8


def test_a_job_that_was_placed_starts_now(wait):
    wait(5)
    found = place(wait(placed_on="w", rung_at=clock.now()))
    assert found.position == 1
    assert abs(wait_seconds(found)) < 1


def test_a_job_that_may_not_start_yet_is_not_foretold_to(wait):
    later = clock.now() + timedelta(minutes=1)
    job_id = wait(available_at=later)
    keep_line(tier=Tier.BATCH, free_slots=4)
    found = place(job_id)
    assert (found.position, found.estimated_start_at) == (1, later)


def test_beyond_the_jobs_that_are_counted_the_measure_says_how_many_there_are(wait, make_account, monkeypatch):
    monkeypatch.setattr("app.line.places.COUNTED_ROWS", 10)
    jobs = [wait(100 - n) for n in range(21)]
    keep_line(tier=Tier.BATCH, accounts={make_account().id: (2001, 200_100)})
    assert place(jobs[5]).position == 6
    # Ten were counted; of the other 1,991, it stands where a half of the time after the tenth is over.
    assert place(jobs[15]).position == pytest.approx(1 + 10 + 1991 * 6 / 11, abs=2)


def test_a_job_that_runs_or_has_ended_has_no_place(wait):
    job_id = wait()
    with transaction() as session:
        move = lifecycle.claim(session, job_id, "w", 60)
    assert place(job_id) is None
    with transaction() as session:
        lifecycle.cancel(session, job_id, move.job.lease_id, lifecycle.Prefill())
    assert place(job_id) is None


def test_counting_reads_ranges_of_an_index_and_no_further_than_the_limit(wait):
    alice_job = wait()
    with transaction() as session:
        session.execute(
            text("""
                INSERT INTO jobs (id, account_id, kind, model, tier, status, request, metadata,
                    request_hash, reserved_tokens, order_at)
                SELECT gen_random_uuid(), account_id, kind, model, tier, status, request, metadata,
                    request_hash, 10, now() - make_interval(secs => n)
                FROM jobs, generate_series(1, 5000) AS n
            """)
        )
    with engine().connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE jobs")
    with transaction() as session:
        job = find_job(session, alice_job)
        values = {
            "job_id": job.id, "account_id": job.account_id, "model": job.model, "tier": job.tier.value,
            "order_at": job.order_at, "limit": 100,
        }  # fmt: skip
        statement = text(f"EXPLAIN (ANALYZE, FORMAT JSON) {_AHEAD.text}").bindparams(
            *_AHEAD._bindparams.values()
        )
        (explained,) = session.scalar(statement, values)
    scans = [node for node in nodes(explained["Plan"]) if "Scan" in node["Node Type"] and "Index Name" in node]
    assert {node["Index Name"] for node in scans} == {"jobs_line"}
    assert max(node["Actual Rows"] for node in scans) <= 101
    assert place(alice_job).position == 5001


def nodes(plan):
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def test_who_waits_is_listed_in_the_order_in_which_they_are_expected_to_start(wait):
    first, second = wait(9, tokens=100), wait(8, tokens=100)
    other = wait(1, tokens=50, account="bob", is_long=True)
    ringing = wait(0, account="bob", placed_on="w", rung_at=clock.now())
    with transaction() as session:
        listed = first_in_line(session, "faulty", Tier.BATCH, 10)
        assert [job.job_id for job in first_in_line(session, "faulty", Tier.BATCH, 2)] == [ringing, first]
    assert [job.job_id for job in listed] == [ringing, first, other, second]
    assert [job.account for job in listed] == ["bob", "alice", "bob", "alice"]
