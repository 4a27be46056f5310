"""The gate: `admit`, `release`, `publish`."""

import pytest

from app.gate import admission
from app.gate.admission import admit, publish, release
from app.gate.errors import LineDraining, LineFull, WindowUnmeetable
from app.gate.shedding import Shedding, find_shedding
from app.line.tables import LineState
from app.redis import client
from config.catalogue import catalogue
from config.queues import Tier, Window
from tests.integration.gate.gate import MODEL, batch, entry, measure

LIMITS = catalogue()[MODEL].line
MOST = LIMITS[Tier.INTERACTIVE].max_jobs
LOW = int(MOST * LIMITS[Tier.INTERACTIVE].low_mark)


@pytest.fixture
def redis(services):
    client().flushdb()
    return client()


def refused(redis, wanted):
    """The refusal of an entry, which must be one."""
    with pytest.raises(admission.Refused) as caught:
        admit(redis, wanted)
    return caught.value


def test_a_gate_that_knows_nothing_lets_in_and_promises_nothing(redis):
    assert admit(redis, entry()) == admission.Admission()


def test_places_go_to_the_worker_with_most_room_until_none_is_left(redis):
    publish(redis, [], {MODEL: {"w1": 1, "w2": 3, "w3": 0}})
    given = [admit(redis, entry()).worker_id for _ in range(5)]
    assert sorted(given[:4]) == ["w1", "w2", "w2", "w2"]
    assert given[0] == "w2"
    assert given[4] is None


def test_batch_jobs_and_long_prompts_wait_for_the_dispatcher(redis):
    publish(redis, [], {MODEL: {"w1": 5}})
    assert admit(redis, batch()).worker_id is None
    assert admit(redis, entry(is_long=True)).worker_id is None
    assert admit(redis, entry()).worker_id == "w1"


def test_room_that_nobody_published_lately_is_gone(redis):
    publish(redis, [], {MODEL: {"w1": 5}})
    assert 0 < redis.ttl(f"lh:room:{MODEL}") <= 10


def test_a_released_place_is_free_again(redis):
    publish(redis, [], {MODEL: {"w1": 1}})
    first = entry()
    admitted = admit(redis, first)
    release(redis, first, admitted.worker_id)
    assert admit(redis, entry()).worker_id == "w1"


def test_a_place_of_a_worker_that_is_gone_does_not_come_back(redis):
    publish(redis, [], {MODEL: {"w1": 1}})
    first = entry()
    admitted = admit(redis, first)
    publish(redis, [], {MODEL: {}})
    release(redis, first, admitted.worker_id)
    assert admit(redis, entry()).worker_id is None


def test_a_job_with_a_place_does_not_wait(redis):
    publish(redis, [measure(jobs=MOST - 1)], {MODEL: {"w1": 2}})
    assert [admit(redis, entry()).worker_id for _ in range(3)] == ["w1", "w1", None]
    assert isinstance(refused(redis, entry()), LineFull)


def test_a_line_refuses_from_the_high_mark_until_the_low_mark_without_flapping(redis):
    for jobs, may_join, transitions in (
        (MOST - 1, True, 0),
        (MOST, False, 1),
        (MOST - 1, False, 1),
        (LOW + 1, False, 1),
        (MOST, False, 1),
        (LOW, True, 2),
        (MOST - 2, True, 2),
        (MOST + 50, False, 3),
    ):
        publish(redis, [measure(jobs=jobs)], {})
        if may_join:
            admit(redis, entry())
        else:
            assert isinstance(refused(redis, entry()), LineFull)
        line = (MODEL, Tier.INTERACTIVE)
        found = find_shedding(redis, [line])[line]
        assert found == Shedding(is_on=not may_join, transitions=transitions), jobs


def test_jobs_that_join_between_two_looks_count(redis):
    publish(redis, [measure(jobs=MOST - 3)], {})
    for _ in range(3):
        admit(redis, entry())
    assert isinstance(refused(redis, entry()), LineFull)


@pytest.mark.parametrize(
    "full",
    [
        {"tokens": LIMITS[Tier.INTERACTIVE].max_tokens},
        {"tokens": 6100, "tokens_per_second": 100.0},  # 61 s of waiting, where 60 are the most
    ],
)
def test_a_line_is_bounded_by_tokens_and_by_wait_too(redis, full):
    publish(redis, [measure(**full)], {})
    assert isinstance(refused(redis, entry()), LineFull)


def test_batch_is_shed_before_interactive_and_comes_back_later(redis):
    for interactive, batch_may in ((LOW - 1, True), (LOW, False), (LOW - 9, False), (int(LOW * 0.6) - 1, True)):
        publish(redis, [measure(jobs=interactive), measure(Tier.BATCH, jobs=1)], {})
        admit(redis, entry())
        if batch_may:
            admit(redis, batch())
        else:
            assert "interactive" in str(refused(redis, batch()))
    assert find_shedding(redis, [(MODEL, tier) for tier in Tier]) == {
        (MODEL, Tier.INTERACTIVE): Shedding(is_on=False, transitions=0),
        (MODEL, Tier.BATCH): Shedding(is_on=False, transitions=2),
    }


def test_a_full_batch_line_does_not_keep_interactive_jobs_out(redis):
    publish(redis, [measure(Tier.BATCH, jobs=LIMITS[Tier.BATCH].max_jobs)], {})
    assert isinstance(refused(redis, batch()), LineFull)
    admit(redis, entry())


def test_a_full_line_says_when_it_will_be_at_the_low_mark(redis):
    publish(redis, [measure(jobs=MOST, jobs_per_second=(MOST - LOW) / 40)], {})
    seconds = {refused(redis, entry()).retry_after_seconds for _ in range(50)}
    assert all(40 <= value <= 52 for value in seconds)
    assert len(seconds) > 10


@pytest.mark.parametrize(("rate", "least", "most"), [(0.001, 300, 390), (1e9, 1, 1.3), (0, 5, 6.5)])
def test_the_time_to_try_again_is_bounded(redis, rate, least, most):
    publish(redis, [measure(jobs=MOST, jobs_per_second=rate)], {})
    assert least <= refused(redis, entry()).retry_after_seconds <= most


def test_a_line_that_is_drained_takes_nothing_and_a_paused_one_takes_all_but_starts_none(redis):
    publish(redis, [measure(state=LineState.DRAINING)], {MODEL: {"w1": 1}})
    assert isinstance(refused(redis, entry()), LineDraining)
    admit(redis, batch())
    publish(redis, [measure(state=LineState.PAUSED, tokens=100, tokens_per_second=1.0)], {MODEL: {"w1": 1}})
    assert admit(redis, entry()) == admission.Admission()


def test_an_account_may_have_so_many_jobs_waiting_and_no_other_pays_for_it(redis):
    for _ in range(3):
        admit(redis, entry(max_waiting_jobs=3))
    assert "3 jobs" in str(refused(redis, entry(max_waiting_jobs=3)))
    admit(redis, entry(max_waiting_jobs=3, account_id="acct_mallory"))
    admit(redis, batch(max_waiting_jobs=3))


def test_an_account_may_have_so_many_tokens_waiting(redis):
    admit(redis, entry(max_waiting_tokens=250, tokens=200))
    assert refused(redis, entry(max_waiting_tokens=250, tokens=51)).retry_after_seconds
    admit(redis, entry(max_waiting_tokens=250, tokens=50))


def test_a_job_that_an_account_can_never_have_waiting_is_not_to_be_tried_again(redis):
    error = refused(redis, entry(max_waiting_tokens=250, tokens=251))
    assert error.retry_after_seconds is None
    assert "250" in str(error)


def test_the_dispatchers_count_replaces_the_gates(redis):
    for _ in range(3):
        admit(redis, entry(max_waiting_jobs=3))
    publish(redis, [measure(jobs=2, tokens=200, accounts={"acct_alice": (2, 200)})], {})
    admit(redis, entry(max_waiting_jobs=3))
    assert isinstance(refused(redis, entry(max_waiting_jobs=3)), LineFull)


def test_a_released_job_no_longer_waits_and_never_counts_below_nothing(redis):
    first = entry(max_waiting_jobs=1)
    admit(redis, first)
    release(redis, first)
    release(redis, first)
    admit(redis, entry(max_waiting_jobs=1))
    assert isinstance(refused(redis, entry(max_waiting_jobs=1)), LineFull)


def test_a_refused_job_changes_nothing(redis):
    publish(redis, [measure(jobs=5, tokens=500)], {MODEL: {"w1": 1}})
    admit(redis, batch())
    before = {key: redis.dump(key) for key in redis.scan_iter()}
    refused(redis, entry(requests_per_minute=10, key_tokens_per_minute=50))
    assert {key: redis.dump(key) for key in redis.scan_iter()} == before


def test_an_account_that_waits_alone_waits_for_all_that_is_before_it(redis):
    mine = {"acct_alice": (10, 1000)}
    publish(redis, [measure(jobs=10, tokens=1000, tokens_per_second=50.0, accounts=mine)], {})
    assert admit(redis, entry()).estimated_wait_seconds == 20


def test_an_account_with_little_waits_for_its_turns_and_not_for_anothers_thousands(redis):
    accounts = {"acct_mallory": (1000, 100_000), "acct_alice": (2, 200)}
    publish(
        redis, [measure(Tier.BATCH, jobs=1002, tokens=100_200, tokens_per_second=50.0, accounts=accounts)], {}
    )
    # Its own 200 tokens, and 300 of the other's, whose turn comes first.
    assert admit(redis, batch()).estimated_wait_seconds == 10
    heavy = batch(weight=4.0, account_id="acct_bob")
    # Three of weight 6, of which it has 4: half a job of the others before its first.
    assert admit(redis, heavy).estimated_wait_seconds == pytest.approx(1.0)


def test_a_window_that_the_rate_does_not_allow_is_refused_unless_the_account_takes_the_risk(redis):
    hours_3 = 3 * 3600 * 100
    mine = {"acct_alice": (1, hours_3, 1.0, {Window.ONE_HOUR: hours_3})}
    publish(
        redis,
        [measure(Tier.BATCH, jobs=1, tokens=hours_3, tokens_per_second=100.0, accounts=mine)],
        {},
    )
    error = refused(redis, batch(window=Window.TWO_HOURS))
    assert isinstance(error, WindowUnmeetable)
    assert (error.param, error.retry_after_seconds) == ("completion_window", None)
    assert "2h" in str(error)
    assert "3 h" in str(error)
    admit(redis, batch(window=Window.EIGHT_HOURS))
    admit(redis, batch(window=Window.TWO_HOURS, accepts_late_windows=True))
    admit(redis, batch(window=Window.TWO_HOURS, account_id="acct_bob"))


def test_jobs_with_a_longer_window_do_not_stand_in_the_way_of_a_shorter_one(redis):
    hours_3 = 3 * 3600 * 100
    mine = {"acct_alice": (1, hours_3, 1.0, {Window.ONE_DAY: hours_3})}
    publish(
        redis,
        [measure(Tier.BATCH, jobs=1, tokens=hours_3, tokens_per_second=100.0, accounts=mine)],
        {},
    )
    admit(redis, batch(window=Window.TWO_HOURS))
    admit(redis, batch(window=Window.TWO_HOURS, tokens=hours_3))
    assert isinstance(refused(redis, batch(window=Window.TWO_HOURS)), WindowUnmeetable)


def test_a_window_is_not_refused_before_any_rate_is_known(redis):
    publish(redis, [measure(Tier.BATCH, jobs=1, tokens=10**8)], {})
    admit(redis, batch(window=Window.ONE_HOUR))


def test_every_key_has_an_end(redis):
    publish(redis, [measure(jobs=5), measure(Tier.BATCH, jobs=5)], {MODEL: {"w1": 1}})
    admission.rebuild(redis, [], [])
    for wanted in (entry, batch):
        for _ in range(2):
            admit(
                redis,
                wanted(
                    requests_per_minute=9,
                    key_requests_per_minute=9,
                    tokens_per_minute=900,
                    key_tokens_per_minute=900,
                ),
            )
    assert len(redis.keys()) > 10
    assert [key for key in redis.scan_iter() if redis.ttl(key) < 0] == []
