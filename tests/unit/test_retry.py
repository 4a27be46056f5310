from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.jobs.retry import ATTEMPTS_PER_CHARGE, BACKOFF_SECONDS, GiveUp, RetryAfter, after_lost_attempt


def decide(**given_values):
    defaults = {"attempt": 1, "lost_attempts": 0, "progressed": False, "max_attempts": 3, "jitter": 1.0}
    return after_lost_attempt(**{**defaults, **given_values})


def test_an_attempt_that_made_progress_is_free_and_clears_the_charges():
    assert decide(progressed=True, lost_attempts=2) == RetryAfter(timedelta(0), 0)


def test_attempts_without_progress_wait_longer_each_time_then_give_up():
    assert decide() == RetryAfter(timedelta(seconds=BACKOFF_SECONDS[0]), 1)
    assert decide(lost_attempts=1) == RetryAfter(timedelta(seconds=BACKOFF_SECONDS[1]), 2)
    assert decide(lost_attempts=2) == GiveUp(3)


def test_a_job_that_gets_one_token_further_each_time_ends_too():
    assert isinstance(decide(progressed=True, attempt=3 * ATTEMPTS_PER_CHARGE), GiveUp)


@given(st.floats(0, 1), st.integers(0, 50))
def test_a_delay_is_never_longer_than_its_step(jitter, lost):
    decision = decide(jitter=jitter, lost_attempts=lost, max_attempts=100)
    assert isinstance(decision, RetryAfter)
    assert timedelta(0) <= decision.delay <= timedelta(seconds=BACKOFF_SECONDS[-1])


@pytest.mark.parametrize("max_attempts", [1, 2, 5])
def test_max_attempts_is_what_it_says(max_attempts):
    assert decide(lost_attempts=max_attempts - 1, max_attempts=max_attempts) == GiveUp(max_attempts)
