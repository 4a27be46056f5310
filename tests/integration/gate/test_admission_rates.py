"""The gate's rates: buckets never go below zero or above their limit, and no reservation is lost."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from app.gate import admission
from app.gate.admission import (
    Reservation,
    Settlement,
    Used,
    admit,
    needs_rebuild,
    publish,
    rebuild,
    release,
    settle,
)
from app.gate.errors import RateLimited, Refused
from app.redis import client
from config.queues import Tier
from tests.integration.gate.gate import batch, entry, limits, measure

ACCOUNT = "acct_alice"
BUCKETS = (f"lh:tokens:{ACCOUNT}:interactive", "lh:tokens:key_alice")
HELD, UNTIL = f"lh:reserved:{ACCOUNT}", f"lh:reserved-until:{ACCOUNT}"


@pytest.fixture
def redis(services):
    client().flushdb()
    return client()


def refused(redis, wanted):
    with pytest.raises(Refused) as caught:
        admit(redis, wanted)
    return caught.value


def settlement(one, used):
    return Settlement(one.job_id, one.account_id, one.key_id, one.tier, used)


def level(redis, bucket):
    """As it was when it was last touched."""
    return float(redis.hget(bucket, "level"))


def left(redis, **given):
    """Of the tokens, as a client is told with a job that costs none."""
    return admit(redis, entry(tokens=0, **given)).rates.tokens.remaining


def expire(redis, job_id):
    """As if the time to settle this job had passed."""
    redis.zadd(UNTIL, {job_id: 1})


def test_what_a_job_may_cost_is_reserved_and_what_it_did_not_use_comes_back(redis):
    job = entry(tokens=600, tokens_per_minute=1000)
    rates = admit(redis, job).rates
    assert (rates.tokens.limit, rates.tokens.remaining) == (1000, 400)
    assert rates.tokens.reset_seconds == pytest.approx(36, abs=1)
    settle(redis, [settlement(job, 250)])
    assert left(redis, tokens_per_minute=1000) == pytest.approx(750, abs=20)


def test_a_second_settlement_and_one_of_a_stranger_change_nothing(redis):
    job, other = (entry(tokens=400, tokens_per_minute=1000) for _ in range(2))
    admit(redis, job)
    admit(redis, other)
    for _ in range(3):
        settle(redis, [settlement(job, 300), settlement(entry(), 0)])
    assert left(redis, tokens_per_minute=1000) == pytest.approx(300, abs=20)
    assert redis.hkeys(HELD)[:1] == [other.job_id.encode()]


def test_a_job_that_used_more_than_it_reserved_takes_it_from_the_bucket_but_never_below_zero(redis):
    job = entry(tokens=400, tokens_per_minute=1000)
    admit(redis, job)
    settle(redis, [settlement(job, 5000)])
    assert level(redis, BUCKETS[0]) == 0


def test_a_request_waits_for_the_refill_and_is_told_how_long(redis):
    admit(redis, entry(tokens=900, tokens_per_minute=1000))
    seconds = {refused(redis, entry(tokens=600, tokens_per_minute=1000)).retry_after_seconds for _ in range(30)}
    assert all(28 <= value <= 30 * 1.3 for value in seconds)
    assert len(seconds) > 10


def test_a_bucket_refills_by_its_limit_each_minute(redis):
    admit(redis, entry(tokens=1000, tokens_per_minute=1000))
    redis.hincrbyfloat(BUCKETS[0], "at", -30)
    assert left(redis, tokens_per_minute=1000) == pytest.approx(500, abs=20)
    redis.hincrbyfloat(BUCKETS[0], "at", -600)
    assert left(redis, tokens_per_minute=1000) == 1000


def test_a_job_that_needs_more_than_the_limit_can_never_pass_and_is_told_so(redis):
    for given in ({"tokens_per_minute": 99}, {"key_tokens_per_minute": 99}):
        error = refused(redis, entry(**given))
        assert isinstance(error, RateLimited)
        assert error.retry_after_seconds is None
        assert "100" in str(error)
        assert "99" in str(error)


def test_requests_are_counted_for_the_account_and_for_the_key(redis):
    given = {"requests_per_minute": 3, "key_requests_per_minute": 2}
    assert [admit(redis, entry(**given)).rates.requests.remaining for _ in range(2)] == [1, 0]
    assert "your key" in str(refused(redis, entry(**given)))
    admit(redis, entry(**given, key_id="key_bob"))
    assert "your account" in str(refused(redis, entry(**given, key_id="key_bob")))


def test_a_released_job_gives_its_tokens_back_and_stays_a_request(redis):
    job = entry(tokens=600, tokens_per_minute=1000, requests_per_minute=5)
    admit(redis, job)
    release(redis, job)
    rates = admit(redis, entry(tokens=0, tokens_per_minute=1000, requests_per_minute=5)).rates
    assert rates.tokens.remaining == 1000
    assert rates.requests.remaining == 3


def test_a_runaway_account_drains_its_own_bucket_and_nobody_elses(redis):
    taken = 0
    for _ in range(20):
        try:
            admit(redis, entry(tokens=90, tokens_per_minute=1000))
        except RateLimited:
            continue
        taken += 1
    assert taken == 11
    bob = {"account_id": "acct_bob", "key_id": "key_bob"}
    assert admit(redis, entry(tokens=90, tokens_per_minute=1000, **bob)).rates.tokens.remaining == 910


def test_tiers_have_their_own_buckets_and_a_key_has_one(redis):
    given = {"tokens": 100, "tokens_per_minute": 150, "key_tokens_per_minute": 1000}
    admit(redis, entry(**given))
    admit(redis, batch(**given))
    assert level(redis, "lh:tokens:acct_alice:batch") == 50
    assert level(redis, "lh:tokens:key_alice") == pytest.approx(800, abs=20)


def test_a_reservation_that_nobody_settles_comes_back_when_its_time_is_over(redis):
    for tokens in (300, 700):
        job = entry(tokens=tokens, tokens_per_minute=1000, key_tokens_per_minute=2000)
        admit(redis, job)
    expire(redis, job.job_id)
    rates = admit(redis, entry(tokens=0, tokens_per_minute=1000, key_tokens_per_minute=2000)).rates
    assert rates.tokens.remaining == pytest.approx(700, abs=20)
    settle(redis, [settlement(job, 700)])
    assert level(redis, BUCKETS[0]) == pytest.approx(700, abs=20)


def test_after_a_flush_the_gate_asks_to_be_rebuilt_and_knows_everything_again(redis):
    kept = limits(requests_per_minute=50, tokens_per_minute=1000, key_tokens_per_minute=2000)
    job = Reservation("job_a", ACCOUNT, "key_alice", Tier.INTERACTIVE, 300, kept)
    assert needs_rebuild(redis)
    rebuild(redis, [job], [Used(ACCOUNT, "key_alice", Tier.INTERACTIVE, 200, 10, kept)])
    assert not needs_rebuild(redis)
    rates = admit(redis, entry(tokens=0, limits=kept)).rates
    assert rates.tokens.remaining == pytest.approx(500, abs=20)
    assert rates.requests.remaining == pytest.approx(39, abs=1)
    settle(redis, [Settlement("job_a", ACCOUNT, "key_alice", Tier.INTERACTIVE, 100)])
    assert level(redis, BUCKETS[0]) == pytest.approx(700, abs=20)
    assert level(redis, BUCKETS[1]) == pytest.approx(1700, abs=40)
    redis.flushdb()
    publish(redis, [measure()], {})
    assert needs_rebuild(redis)


def test_what_came_between_a_flush_and_the_rebuilding_counts_once(redis):
    job = entry(tokens=400, tokens_per_minute=1000)
    admit(redis, job)
    reservation = Reservation(job.job_id, ACCOUNT, job.key_id, job.tier, 400, job.limits)
    rebuild(redis, [reservation], [])
    assert level(redis, BUCKETS[0]) == pytest.approx(600, abs=20)
    settle(redis, [settlement(job, 0)])
    assert level(redis, BUCKETS[0]) == pytest.approx(1000, abs=20)


def test_a_rebuilt_bucket_is_not_below_zero(redis):
    kept = limits(tokens_per_minute=1000)
    jobs = [Reservation(f"job_{n}", ACCOUNT, None, Tier.BATCH, 700, kept) for n in range(1200)]
    rebuild(redis, jobs, [])
    assert level(redis, f"lh:tokens:{ACCOUNT}:batch") == 0
    assert redis.hlen(HELD) == redis.zcard(UNTIL) == 1200


class Gate(RuleBasedStateMachine):
    """Reserve, settle, release, crash (never settle), let time pass and lose everything, in any order."""

    @initialize(account=st.integers(50, 2000), key=st.integers(0, 2000))
    def begin(self, account, key):
        self.redis = client()
        self.redis.flushdb()
        self.limits = limits(tokens_per_minute=account, key_tokens_per_minute=key, requests_per_minute=30)
        self.held = {}  # by job id: the entry

    @rule(tokens=st.integers(0, 800))
    def reserve(self, tokens):
        wanted = entry(tokens=tokens, limits=self.limits)
        try:
            admit(self.redis, wanted)
        except RateLimited:
            return
        finally:
            self.held = {j: e for j, e in self.held.items() if self.redis.zscore(UNTIL, j)}
        self.held[wanted.job_id] = wanted

    @rule(data=st.data(), used=st.integers(0, 3000), times=st.integers(1, 2))
    def end(self, data, used, times):
        if self.held:
            job = self.held.pop(data.draw(st.sampled_from(sorted(self.held))))
            for _ in range(times):
                settle(self.redis, [settlement(job, used)])

    @rule(data=st.data())
    def turn_away(self, data):
        if self.held:
            release(self.redis, self.held.pop(data.draw(st.sampled_from(sorted(self.held)))))

    @rule(data=st.data())
    def outlive(self, data):
        """A job whose worker, and whoever should have settled it, is gone: the next admission gives it back."""
        if self.held:
            gone = data.draw(st.sampled_from(sorted(self.held)))
            expire(self.redis, gone)
            admitted, _ = admission.ask(self.redis, entry(tokens=0, limits=self.limits))
            assert admitted.rates.tokens.limit
            assert not self.redis.hexists(HELD, gone)
            self.held = {j: e for j, e in self.held.items() if j != gone}
            self.note_empty_jobs()

    @rule(seconds=st.integers(0, 90))
    def pass_time(self, seconds):
        for bucket in (*BUCKETS, f"lh:requests:{ACCOUNT}"):
            if self.redis.exists(bucket):
                self.redis.hincrbyfloat(bucket, "at", -seconds)

    @rule()
    def lose_and_rebuild(self):
        self.redis.flushdb()
        rebuild(
            self.redis,
            [Reservation(j, ACCOUNT, e.key_id, e.tier, e.tokens, self.limits) for j, e in self.held.items()],
            [],
        )

    def note_empty_jobs(self):
        """Jobs that only asked hold nothing, but are held."""
        for job_id in self.redis.hkeys(HELD):
            self.held.setdefault(job_id.decode(), entry(job_id=job_id.decode(), tokens=0, limits=self.limits))

    @invariant()
    def every_bucket_is_within_its_limit(self):
        for bucket in (*BUCKETS, f"lh:requests:{ACCOUNT}"):
            if self.redis.exists(bucket):
                stored = self.redis.hmget(bucket, "level", "limit")
                assert 0 <= float(stored[0]) <= float(stored[1])

    @invariant()
    def every_unsettled_job_is_held_and_no_other(self):
        if hasattr(self, "held"):
            found = {job_id.decode() for job_id in self.redis.hkeys(HELD)}
            assert found == {job_id.decode() for job_id in self.redis.zrange(UNTIL, 0, -1)} == set(self.held)


def test_no_order_of_events_breaks_a_bucket_or_loses_a_reservation(services):
    run_state_machine_as_test(
        Gate,
        settings=settings(
            max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_concurrent_jobs_never_hold_more_than_the_limit_and_leave_the_bucket_as_it_was(redis):
    """Threads reserve, settle, settle twice, release, or crash and leave their job to expire."""
    limit, threads, jobs_each = 6000, 8, 60
    kept = limits(tokens_per_minute=limit, key_tokens_per_minute=limit * 2)
    began = time.monotonic()
    lows, crashed, lock = [], [], threading.Lock()

    def work(seed):
        chance = random.Random(seed)
        for _ in range(jobs_each):
            job = entry(tokens=chance.randrange(1, 1500), limits=kept)
            try:
                lows.append(admit(client(), job).rates.tokens.remaining)
            except RateLimited:
                continue
            match chance.randrange(4):
                case 0:
                    settle(client(), [settlement(job, 0)])
                case 1:
                    for _ in range(2):
                        settle(client(), [settlement(job, 0)])
                case 2:
                    release(client(), job)
                case 3:
                    with lock:
                        crashed.append(job)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    held = sum(int(value.split()[0]) for value in redis.hvals(HELD))
    assert held == sum(job.tokens for job in crashed) > 0
    refilled = limit / 60 * (time.monotonic() - began)
    assert min(lows) >= 0
    assert held <= limit + refilled
    # What is not held is in the bucket, and no more than came in by time.
    assert limit - held - 1 <= level(redis, BUCKETS[0]) <= limit - held + refilled + 1
    for job in crashed:
        expire(redis, job.job_id)
    for _ in range(len(crashed) // admission.SWEEP_COUNT + 1):
        admit(redis, entry(tokens=0, limits=kept))
    assert level(redis, BUCKETS[0]) == limit
    assert not {job.job_id.encode() for job in crashed} & set(redis.hkeys(HELD))
