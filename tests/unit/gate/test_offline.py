"""What one process lets in while Redis is away."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from app.gate.errors import RateLimited
from app.gate.offline import PROBE_SECONDS, Breaker, LocalBound


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def admitted(bound, account="alice", per_minute=60, asked=1):
    count = 0
    for _ in range(asked):
        try:
            bound.admit(account, per_minute)
        except RateLimited:
            continue
        count += 1
    return count


def test_after_a_failure_one_caller_in_a_second_asks_again(clock):
    breaker = Breaker(clock)
    assert breaker.may_try()
    assert breaker.failed()
    assert not breaker.may_try()
    clock.now += PROBE_SECONDS
    assert [breaker.may_try() for _ in range(3)] == [True, False, False]
    assert not breaker.failed()
    clock.now += PROBE_SECONDS
    assert breaker.may_try()
    breaker.worked()
    assert [breaker.may_try() for _ in range(3)] == [True] * 3
    assert breaker.failed()


def test_each_account_has_its_minute_and_its_refill(clock):
    bound = LocalBound(monotonic=clock)
    assert admitted(bound, asked=100) == 60
    assert admitted(bound, "bob", asked=100) == 60
    clock.now += 10
    assert admitted(bound, asked=100) == 10
    clock.now += 1000
    assert admitted(bound, asked=100) == 60


def test_a_refusal_says_when_there_is_room_and_a_refused_request_costs_nothing(clock):
    bound = LocalBound(monotonic=clock)
    admitted(bound, per_minute=6, asked=6)
    for _ in range(5):
        with pytest.raises(RateLimited) as caught:
            bound.admit("alice", 6)
        assert 10 <= caught.value.retry_after_seconds <= 13
    clock.now += 10
    assert admitted(bound, per_minute=6, asked=3) == 1


def test_no_limit_is_no_bound(clock):
    assert admitted(LocalBound(monotonic=clock), per_minute=0, asked=500) == 500


def test_threads_together_get_no_more_than_the_bound(clock):
    bound = LocalBound(monotonic=clock)
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda _: admitted(bound, asked=50), range(8))) == 60


def test_accounts_that_were_not_heard_of_for_longest_are_forgotten(clock):
    bound = LocalBound(2, clock)
    for account in ("alice", "bob", "carol"):
        assert admitted(bound, account, per_minute=1) == 1
    assert admitted(bound, "carol", per_minute=1) == 0
    assert admitted(bound, "alice", per_minute=1) == 1
