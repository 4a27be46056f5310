"""What `plan` promises, whatever waits and whatever room there is."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.line.plan import Account, Capacity, Plan, Room, Waiting, plan
from config.queues import Tier

NOW = 100_000.0
INTERACTIVE, BATCH = Tier.INTERACTIVE, Tier.BATCH
ACCOUNTS = ("acct_a", "acct_b", "acct_c")


def job(number: int, account: str = "acct_a", tier: Tier = BATCH, **fields) -> Waiting:
    fields = {"order": float(number), "tokens": 100, "since": NOW - 1, **fields}
    return Waiting(f"job_{number:04}", account, tier, **fields)


@st.composite
def rooms(draw):
    slots = draw(st.integers(1, 8))
    interactive = draw(st.integers(0, slots))
    batch = draw(st.integers(0, slots - interactive))
    yielding = draw(st.integers(0, batch))
    return (
        slots,
        interactive,
        batch,
        yielding,
        draw(st.integers(0, batch - yielding)),
        draw(st.integers(1, slots)),
    )


@st.composite
def situations(draw):
    capacity = [
        Room(f"w{i}", slots, interactive, batch, yielding, long_slots=long_slots, aged=aged)
        for i, (slots, interactive, batch, yielding, aged, long_slots) in enumerate(
            draw(st.lists(rooms(), max_size=4))
        )
    ]
    waiting = [
        job(
            number,
            draw(st.sampled_from(ACCOUNTS)),
            draw(st.sampled_from(list(Tier))),
            order=draw(st.floats(0, 2 * NOW)),
            tokens=draw(st.integers(0, 5000)),
            since=draw(st.floats(0, NOW)),
            due=draw(st.none() | st.floats(NOW, 2 * NOW)),
            expires=draw(st.none() | st.floats(NOW - 10, 2 * NOW)),
            is_long=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 40)))
    ]
    accounts = {
        name: Account({tier: draw(st.floats(0, 1e6)) for tier in Tier}, draw(st.floats(0.1, 10)))
        for name in draw(st.sets(st.sampled_from(ACCOUNTS)))
    }
    return waiting, Capacity(capacity, accounts)


def counts(decided: Plan, worker: str) -> Counter[Tier]:
    return Counter(p.job.tier for p in decided.placements if p.worker_id == worker)


@given(situations())
def test_no_worker_is_given_more_than_it_has_room_for(situation):
    waiting, capacity = situation
    decided = plan(waiting, capacity, NOW)
    for room in capacity.rooms:
        new = counts(decided, room.worker_id)
        after = room.interactive + room.batch + new[INTERACTIVE] + new[BATCH]
        # Beyond its slots a worker is given only interactive jobs, one for each batch job that yields.
        assert after - room.slots <= max(0, min(new[INTERACTIVE], room.yielding))
        assert new[BATCH] <= max(0, room.free)


@given(situations())
def test_each_job_is_placed_once_and_only_if_it_waits(situation):
    waiting, capacity = situation
    placed = [p.job.job_id for p in plan(waiting, capacity, NOW).placements]
    assert len(placed) == len(set(placed))
    assert set(placed) <= {job.job_id for job in waiting}


@given(situations())
def test_no_job_is_placed_after_its_time_to_start(situation):
    waiting, capacity = situation
    for placement in plan(waiting, capacity, NOW).placements:
        assert placement.job.expires is None or placement.job.expires > NOW


@given(situations())
def test_long_prompts_keep_to_their_slots(situation):
    waiting, capacity = situation
    decided = plan(waiting, capacity, NOW)
    for room in capacity.rooms:
        long = sum(p.job.is_long for p in decided.placements if p.worker_id == room.worker_id)
        assert room.long + long <= max(room.long, room.long_slots)


@given(situations())
def test_no_slot_stays_free_while_a_job_could_take_it(situation):
    waiting, capacity = situation
    decided = plan(waiting, capacity, NOW)
    placed = {p.job.job_id for p in decided.placements}
    left = [j for j in waiting if j.job_id not in placed and (j.expires is None or j.expires > NOW)]
    for room in decided.rooms:
        for tier in Tier:
            able = [j for j in left if j.tier is tier and (not j.is_long or room.long < room.long_slots)]
            assert not able or room.room_for(tier) == 0


@given(situations())
def test_the_plan_is_the_same_whatever_the_order_in_which_jobs_are_given(situation):
    waiting, capacity = situation
    there, back = plan(waiting, capacity, NOW), plan(waiting[::-1], capacity, NOW)
    assert [p.job.job_id for p in there.placements] == [p.job.job_id for p in back.placements]


@given(situations())
def test_within_an_account_and_kind_the_first_goes_first(situation):
    waiting, capacity = situation
    placed = {p.job.job_id for p in plan(waiting, capacity, NOW).placements}
    able = [j for j in waiting if j.expires is None or j.expires > NOW]

    def kind(job: Waiting) -> tuple[object, ...]:
        return job.account_id, job.tier, job.is_long, capacity.is_aged(job, NOW)

    for first in able:
        for second in able:
            alike = (first.account_id, first.tier, first.is_long) == (
                second.account_id,
                second.tier,
                second.is_long,
            )
            aged_alike = capacity.is_aged(first, NOW) == capacity.is_aged(second, NOW)
            if alike and aged_alike and (first.order, first.job_id) < (second.order, second.job_id):
                assert first.job_id in placed or second.job_id not in placed


@given(situations())
def test_aged_jobs_get_no_more_than_their_share_before_interactive_ones(situation):
    waiting, capacity = situation
    decided = plan(waiting, capacity, NOW)
    allowed = max(1, int(sum(room.slots for room in capacity.rooms) * capacity.aged_share))
    before = sum(room.aged for room in capacity.rooms)
    assert before + sum(p.is_aged for p in decided.placements) <= max(before, allowed)


def serve(waiting: list[Waiting], accounts: dict[str, Account], rounds: int) -> Counter[str]:
    """Tokens by account, where one slot serves one job a round."""
    given = dict(accounts)
    tokens: Counter[str] = Counter()
    left = list(waiting)
    for _ in range(rounds):
        decided = plan(left, Capacity([Room("w", 1)], given), NOW)
        if not decided.placements:
            break
        (placement,) = decided.placements
        account = given.get(placement.job.account_id, Account({BATCH: 0.0}))
        more = account.virtual_tokens.get(BATCH, 0.0) + placement.job.tokens / account.weight
        given[placement.job.account_id] = replace(account, virtual_tokens={BATCH: more})
        tokens[placement.job.account_id] += placement.job.tokens
        left.remove(placement.job)
    return tokens


def test_accounts_share_by_tokens_not_by_jobs():
    small = [job(i, "acct_a", tokens=100) for i in range(400)]
    large = [job(1000 + i, "acct_b", tokens=1000) for i in range(40)]
    served = serve(small + large, {}, 200)
    assert served["acct_a"] == pytest.approx(served["acct_b"], rel=0.1)


@given(st.floats(0.2, 5))
def test_weights_divide_the_tokens(weight):
    waiting = [job(i, account) for i, account in enumerate(["acct_a", "acct_b"] * 300)]
    served = serve(waiting, {"acct_a": Account({BATCH: 0.0}, weight), "acct_b": Account({BATCH: 0.0})}, 240)
    assert served["acct_a"] / served["acct_b"] == pytest.approx(weight, rel=0.1)


def test_ten_jobs_do_not_wait_behind_fifty_thousand_of_another_account():
    # As read from Postgres: of each account as many as could go.
    waiting = [job(i, "acct_a") for i in range(10)] + [job(100 + i, "acct_b", order=1e6) for i in range(10)]
    decided = plan(waiting, Capacity([Room("w", 10)]), NOW)
    assert Counter(p.job.account_id for p in decided.placements) == {"acct_a": 5, "acct_b": 5}


def test_an_interactive_job_takes_the_slot_of_a_batch_job_that_yields():
    room = Room("w", slots=2, batch=2, yielding=1)
    waiting = [job(1, tier=INTERACTIVE), job(2, tier=INTERACTIVE), job(3)]
    assert [p.job.job_id for p in plan(waiting, Capacity([room]), NOW).placements] == ["job_0001"]


def test_a_free_slot_is_taken_before_one_is_freed():
    full = Room("full", slots=4, batch=4, yielding=4)
    free = Room("free", slots=4, interactive=3)
    (placement,) = plan([job(1, tier=INTERACTIVE)], Capacity([full, free]), NOW).placements
    assert placement.worker_id == "free"


def test_work_is_spread_over_workers_by_their_room():
    waiting = [job(i) for i in range(6)]
    decided = plan(waiting, Capacity([Room("big", 8), Room("small", 4)]), NOW)
    assert {name: counts(decided, name)[BATCH] for name in ("big", "small")} == {"big": 4, "small": 2}


@pytest.mark.parametrize("aged", [{"since": NOW - 601}, {"due": NOW + 599}])
def test_an_aged_batch_job_goes_before_interactive_ones(aged):
    waiting = [job(i, tier=INTERACTIVE) for i in range(3)] + [job(9, **aged)]
    placements = plan(waiting, Capacity([Room("w", 8, interactive=7)]), NOW).placements
    assert [(p.job.job_id, p.is_aged) for p in placements] == [("job_0009", True)]


def test_batch_is_not_starved_by_interactive_work_without_end():
    """One slot in eight frees each round, and interactive jobs never stop coming."""
    batch = [job(i, since=NOW) for i in range(3)]
    served = 0
    for second in range(700):
        waiting = [*batch, job(1000 + second, tier=INTERACTIVE, since=NOW + second)]
        for placement in plan(waiting, Capacity([Room("w", 8, interactive=7)]), NOW + second).placements:
            if placement.job in batch:
                batch.remove(placement.job)
                served += 1
    assert served == 3
