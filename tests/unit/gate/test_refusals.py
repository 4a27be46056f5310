"""Refusals in words, and when to come back."""

from hypothesis import given
from hypothesis import strategies as st

from app.gate.errors import LineFull, RateLimited
from app.gate.refusals import jittered, refusal
from config.queues import Tier, Window


def refused(**answer):
    return refusal(answer, "m", Tier.BATCH, Window.ONE_HOUR)


@given(st.floats(0, 1e6), st.floats(0, 1, exclude_max=True))
def test_nobody_comes_back_early_or_much_later(seconds, chance):
    assert seconds <= jittered(seconds, lambda: chance) <= seconds * 1.3 + 1e-9


def test_clients_that_were_refused_together_come_back_apart():
    assert len({refused(why="full", jobs=1, tokens=1, retry=60).retry_after_seconds for _ in range(50)}) > 40


def test_a_full_line_says_what_waits():
    error = refused(why="full", jobs=12.0, tokens=3400.0)
    assert isinstance(error, LineFull)
    assert str(error) == "The batch line of 'm' is full: 12 jobs with 3400 tokens wait."


def test_a_rate_says_whose_it_is_and_what_is_left():
    error = refused(why="rate", what="tokens", owner="key", limit=100, cost=60, remaining=40, retry=12)
    assert isinstance(error, RateLimited)
    assert (
        str(error) == "Rate limit reached: 40 of 100 tokens a minute are left for your key, this job needs 60."
    )


def test_what_can_never_pass_is_not_to_be_retried():
    for answer in (
        {"why": "rate", "what": "tokens", "owner": "key", "limit": 10, "cost": 11, "remaining": 10, "retry": 6},
        {"why": "account_full", "what": "tokens", "limit": 10, "own": 0, "cost": 11},
    ):
        assert refused(**answer).retry_after_seconds is None
