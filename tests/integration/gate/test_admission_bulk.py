"""The gate: `admit_bulk`, `release_bulk`."""

from typing import Any

import pytest

from app.gate.admission import BulkEntry, admit, admit_bulk, publish, release_bulk
from app.gate.errors import AccountFull, LineDraining, LineFull, WindowUnmeetable
from app.line.tables import LineState
from app.redis import client
from config.catalogue import catalogue
from config.queues import Tier, Window
from tests.integration.gate.gate import MODEL, batch, limits, measure

LIMITS = catalogue()[MODEL].line[Tier.BATCH]


@pytest.fixture
def redis(services):
    client().flushdb()
    return client()


def bulk(jobs: int = 10, tokens: int = 1_000, window: Window = Window.ONE_DAY, **given: Any) -> BulkEntry:
    return BulkEntry("acct_alice", MODEL, window, jobs, tokens, limits(**given))


def waiting(redis):
    """Jobs and tokens of the batch line, as the gate counts them."""
    return [int(value) for value in redis.hmget(f"lh:line:{MODEL}:batch", "jobs", "tokens")]


def test_all_jobs_join_together(redis):
    assert admit_bulk(redis, bulk(jobs=10, tokens=1_000)) is None
    assert waiting(redis) == [10, 1_000]


def test_jobs_that_did_not_come_make_room_again(redis):
    admit_bulk(redis, bulk(jobs=10, tokens=1_000))
    release_bulk(redis, bulk(jobs=10, tokens=1_000))
    assert waiting(redis) == [0, 0]


def test_none_joins_where_the_account_may_not_have_all_of_them_waiting(redis):
    assert admit_bulk(redis, bulk(jobs=6, max_waiting_jobs=10)) is None
    refused = admit_bulk(redis, bulk(jobs=5, max_waiting_jobs=10))
    assert isinstance(refused, AccountFull)
    assert "6 jobs waiting and may have 10; this batch needs 5" in str(refused)
    assert waiting(redis) == [6, 1_000]
    assert admit_bulk(redis, bulk(jobs=4, max_waiting_jobs=10)) is None


def test_a_batch_of_more_tokens_than_may_ever_wait_is_told_so(redis):
    refused = admit_bulk(redis, bulk(tokens=101, max_waiting_tokens=100))
    assert isinstance(refused, AccountFull)
    assert refused.retry_after_seconds is None
    assert str(refused) == "This batch needs 101 tokens; your account may have 100 waiting in a line."


def test_rates_per_minute_do_not_bound_a_batch(redis):
    rates = {"requests_per_minute": 1, "tokens_per_minute": 1, "key_requests_per_minute": 1}
    assert admit_bulk(redis, bulk(**rates)) is None
    # Nor does it use them up.
    assert admit(redis, batch(requests_per_minute=1)).rates.requests.remaining == 0


def test_a_full_line_takes_none(redis):
    publish(redis, [measure(Tier.BATCH, jobs=LIMITS.max_jobs)], {})
    refused = admit_bulk(redis, bulk())
    assert isinstance(refused, LineFull)
    assert not isinstance(refused, AccountFull)


def test_a_draining_line_takes_none(redis):
    publish(redis, [measure(Tier.BATCH, state=LineState.DRAINING)], {})
    assert isinstance(admit_bulk(redis, bulk()), LineDraining)


def test_a_window_that_the_last_job_would_miss_is_refused(redis):
    publish(redis, [measure(Tier.BATCH, tokens_per_second=1.0)], {})
    assert admit_bulk(redis, bulk(jobs=2, tokens=3_600, window=Window.ONE_HOUR)) is None
    refused = admit_bulk(redis, bulk(jobs=10, tokens=7_200, window=Window.ONE_HOUR))
    assert isinstance(refused, WindowUnmeetable)
    assert "before the last job of this batch" in str(refused)
    assert admit_bulk(redis, bulk(jobs=10, tokens=7_200, window=Window.TWO_HOURS)) is not None
    assert admit_bulk(redis, bulk(jobs=10, tokens=7_200, window=Window.EIGHT_HOURS)) is None
