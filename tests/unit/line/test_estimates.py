"""Where a job stands and when it starts, as foretold."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.line.estimates import (
    STALE_SECONDS,
    Ahead,
    Waiter,
    about_to_start,
    estimate,
    extrapolated,
    in_order,
    served_meanwhile,
)
from app.line.measures import AccountMeasure, Measure
from app.line.tables import LineState
from app.line.wording import in_words, standing
from config.queues import Tier

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def line(tier=Tier.INTERACTIVE, accounts=None, **fields):
    accounts = accounts or {}
    return Measure(
        **{
            "model": "m",
            "tier": tier,
            "measured_at": NOW,
            "slots": 4,
            "tokens_per_second": 100.0,
            "jobs": sum(account.jobs for account in accounts.values()),
            "tokens": sum(account.tokens for account in accounts.values()),
            "accounts": accounts,
            **fields,
        }
    )


def wait_seconds(waiter, measure, other=None):
    start_at = estimate(waiter, measure, other, NOW).estimated_start_at
    return None if start_at is None else (start_at - NOW).total_seconds()


def test_a_job_that_is_alone_is_first_and_starts_at_once_where_a_slot_is_free():
    place = estimate(Waiter("a", tokens=50), line(free_slots=1), None, NOW)
    assert (place.position, place.estimated_start_at) == (1, NOW)
    # A slot of four makes a quarter of a hundred tokens a second.
    assert place.estimated_finish_at == NOW + timedelta(seconds=2)


def test_without_a_free_slot_even_the_first_waits_for_one():
    measure = line(accounts={"a": AccountMeasure(2, 200)})
    assert wait_seconds(Waiter("a", tokens=100), measure) == 1.0


def test_what_is_ahead_in_its_own_account_takes_its_time():
    measure = line(accounts={"a": AccountMeasure(11, 1100)})
    place = estimate(Waiter("a", Ahead(10, 1000), 100), measure, None, NOW)
    assert place.position == 11
    assert place.estimated_start_at == NOW + timedelta(seconds=11)


def test_another_account_is_served_as_much_meanwhile_and_no_more_than_it_has():
    deep = AccountMeasure(20_000, 2_000_000)
    accounts = {"a": AccountMeasure(11, 1100), "b": deep, "c": AccountMeasure(3, 30)}
    place = estimate(Waiter("a", Ahead(10, 1000), 100), line(accounts=accounts), None, NOW)
    assert place.position == 1 + 10 + 10 + 3


def test_twice_the_weight_halves_what_others_are_served_before():
    others = {"b": AccountMeasure(1000, 100_000), "c": AccountMeasure(1000, 100_000)}

    def served(weight):
        return served_meanwhile(Waiter("a", Ahead(10, 1000)), {"a": AccountMeasure(11, 1100, weight), **others})

    assert (served(1.0).jobs, served(2.0).jobs) == (20, 10)
    assert served(2.0).tokens == served(1.0).tokens / 2


def test_a_heavier_account_is_served_more_before():
    def served(weight):
        accounts = {"a": AccountMeasure(11, 1100), "b": AccountMeasure(1000, 100_000, weight)}
        return served_meanwhile(Waiter("a", Ahead(10, 1000)), accounts).jobs

    assert served(3.0) == 3 * served(1.0)


def test_free_slots_take_the_first_ones_at_once():
    accounts = {"a": AccountMeasure(20, 2000)}
    measure = line(accounts=accounts, free_slots=4)
    assert wait_seconds(Waiter("a", Ahead(3, 300), 100), measure) == 0
    assert wait_seconds(Waiter("a", Ahead(4, 400), 100), measure) == 1
    assert wait_seconds(Waiter("a", Ahead(8, 800), 100), measure) == 5


def test_interactive_jobs_go_before_batch_jobs_and_never_the_other_way_round():
    interactive = line(accounts={"x": AccountMeasure(5, 1000)})
    batch = line(Tier.BATCH, {"a": AccountMeasure(1, 100)})
    waiter = Waiter("a", tokens=100)
    alone, behind = (estimate(waiter, batch, other, NOW) for other in (None, interactive))
    assert (alone.position, behind.position) == (1, 6)
    assert behind.estimated_start_at - alone.estimated_start_at == timedelta(seconds=10)
    assert estimate(waiter, interactive, batch, NOW).position == 1


def test_interactive_jobs_that_may_not_start_hold_nobody_up():
    paused = line(accounts={"x": AccountMeasure(5, 1000)}, state=LineState.PAUSED)
    assert estimate(Waiter("a"), line(Tier.BATCH), paused, NOW).position == 1


def test_a_batch_job_has_the_slots_that_interactive_ones_leave():
    batch = line(Tier.BATCH, free_slots=1, tokens_per_second=50.0)
    place = estimate(Waiter("a", tokens=100), batch, line(running=2), NOW)
    assert place.estimated_finish_at == NOW + timedelta(seconds=4)


def test_a_line_that_has_not_moved_yet_is_taken_to_move_as_the_other_one():
    batch = line(Tier.BATCH, {"a": AccountMeasure(2, 200)}, tokens_per_second=0.0)
    assert wait_seconds(Waiter("a", Ahead(1, 100), 100), batch, line(running=2)) == 4


@pytest.mark.parametrize(
    "unknown",
    [
        {"tokens_per_second": 0.0},
        {"state": LineState.PAUSED, "free_slots": 2},
        {"slots": 0},
        {"measured_at": NOW - timedelta(seconds=STALE_SECONDS + 1), "free_slots": 2},
    ],
)
def test_nothing_is_foretold_where_nothing_is_known(unknown):
    place = estimate(Waiter("a", Ahead(2, 200), 100), line(**unknown), None, NOW)
    assert (place.position, place.estimated_start_at, place.estimated_finish_at) == (3, None, None)


def test_a_start_is_foretold_without_a_finish_where_a_slot_is_free_and_no_speed_known():
    place = estimate(Waiter("a", tokens=100), line(tokens_per_second=0.0, free_slots=1), None, NOW)
    assert (place.estimated_start_at, place.estimated_finish_at) == (NOW, None)


def test_a_job_on_its_way_to_a_worker_starts_now():
    place = about_to_start(100, line(), None, NOW)
    assert (place.position, place.estimated_start_at) == (1, NOW)
    assert place.estimated_finish_at == NOW + timedelta(seconds=4)


def test_what_was_not_counted_is_taken_from_the_measure():
    counted = Ahead(100, 1000)
    assert extrapolated(counted, AccountMeasure(300, 5000), 0.5) == Ahead(200, 3000)
    assert extrapolated(counted, AccountMeasure(50, 500), 1.0) == counted


def test_jobs_of_several_accounts_take_turns_by_tokens_and_weight():
    small = (1.0, [(f"s{n}", 10) for n in range(4)])
    large = (1.0, [(f"l{n}", 30) for n in range(2)])
    heavy = (2.0, [(f"h{n}", 10) for n in range(3)])
    assert in_order([small, large, heavy]) == ["s0", "l0", "h0", "h1", "s1", "h2", "s2", "l1", "s3"]


def test_waiting_is_told_in_plain_words():
    assert [in_words(s) for s in (0, 40.4, 89, 91, 720, 12_600, 14_400, 200_000)] == [
        "1 s", "40 s", "89 s", "2 min", "12 min", "3.5 h", "4 h", "2 days",
    ]  # fmt: skip
    assert standing(18, 40) == "17 jobs are ahead; about 40 s"
    assert standing(2, None) == "1 job is ahead"
    assert standing(1, 0) == "Next in line; about to start"
    assert standing(12_346, 5400) == "12,345 jobs are ahead; about 1.5 h"


amounts = st.integers(0, 1_000_000)
weights = st.floats(0.1, 10)
accounts = st.dictionaries(
    st.sampled_from("abcde"),
    st.builds(AccountMeasure, st.integers(1, 10_000), st.integers(1, 1_000_000), weights),
    max_size=5,
)
lines = st.builds(
    line,
    st.sampled_from(Tier),
    accounts,
    free_slots=st.integers(0, 8),
    running=st.integers(0, 8),
    slots=st.integers(0, 8),
    tokens_per_second=st.floats(0, 10_000),
    state=st.sampled_from(LineState),
)


@given(lines, st.none() | lines, st.integers(0, 10_000), amounts, st.integers(0, 10_000), amounts)
def test_more_ahead_is_never_better(measure, other, jobs, tokens, more_jobs, more_tokens):
    near = Waiter("a", Ahead(jobs, tokens), 100)
    far = Waiter("a", Ahead(jobs + more_jobs, tokens + more_tokens), 100)
    first, second = (estimate(waiter, measure, other, NOW) for waiter in (near, far))
    assert 1 <= first.position <= second.position
    assert first.position >= jobs + 1
    if first.estimated_start_at is None or second.estimated_start_at is None:
        return
    assert NOW <= first.estimated_start_at <= second.estimated_start_at + timedelta(microseconds=2)
    if first.estimated_finish_at:
        assert first.estimated_finish_at >= first.estimated_start_at


@given(lines, amounts)
def test_nobody_is_said_to_wait_behind_more_than_there_is(measure, tokens):
    others = [account for name, account in measure.accounts.items() if name != "a"]
    served = served_meanwhile(Waiter("a", Ahead(1, tokens)), measure.accounts)
    assert 0 <= served.jobs <= sum(account.jobs for account in others) * (1 + 1e-9)
    assert 0 <= served.tokens <= sum(account.tokens for account in others) * (1 + 1e-9)


@given(lines, st.integers(1, 8))
def test_a_free_slot_never_delays(measure, more):
    waiter = Waiter("a", Ahead(5, 500), 100)
    freer = replace(measure, free_slots=measure.free_slots + more)
    before, after = (wait_seconds(waiter, each) for each in (measure, freer))
    if before is not None:
        assert after is not None
        assert after <= before + 1e-6
