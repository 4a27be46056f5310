"""What the dispatcher reads and writes: rooms, candidates, placements, shares, the ledger's way into them."""

from collections import Counter

import pytest
from sqlalchemy import select, text

from app.db import transaction
from app.jobs import lifecycle
from app.jobs.states import IncompleteReason, Status
from app.jobs.tables import Usage, Worker
from app.line import booking, measuring, placing, waiting
from app.line.plan import Capacity, Room, plan
from app.line.rates import Rates
from app.line.tables import Line, Share
from config.queues import Tier
from tests.integration.jobs.conftest import segment
from tests.integration.line.conftest import act

MODEL = "faulty"
ROOM = Room("w1", slots=8, long_slots=2)


def candidates(rooms=(ROOM,)):
    return act(waiting.read_candidates, MODEL, list(rooms))


def dispatch(rooms=(ROOM,), now=0.0):
    """One round of the dispatcher, without the bell. Gives the placements."""
    with transaction() as session:
        found = waiting.read_candidates(session, MODEL, list(rooms))
        placing.welcome(session, MODEL, found.newcomers, found.accounts)
        decided = plan(found.waiting, Capacity(list(rooms), found.accounts), now)
        placed = placing.place(session, decided.placements)
        charges = Counter()
        for placement in placed:
            charges[placement.job.account_id, MODEL, placement.job.tier] += placement.job.tokens
        placing.charge(session, charges)
    return placed


def share(account, tier=Tier.BATCH):
    return act(lambda session: session.get(Share, (account.id, MODEL, tier)))


def test_a_worker_that_is_heard_of_has_room(add_worker):
    add_worker("w1", slots=8)
    (room,) = act(waiting.read_rooms)[MODEL]
    assert (room.worker_id, room.slots, room.free, room.long_slots) == ("w1", 8, 8, 2)


@pytest.mark.parametrize("gone", [{"draining": True}, {"seen_seconds_ago": 60}])
def test_a_worker_that_stops_or_is_silent_has_none(add_worker, gone):
    add_worker("w1", **gone)
    assert act(waiting.read_rooms) == {}


def test_running_and_placed_jobs_take_room(add_worker, make_job, claim):
    add_worker("w1", slots=8)
    claim(make_job(), worker="w1")
    claim(make_job(tier="batch"), worker="w1")
    claim(make_job(tier="batch"), worker="another")
    make_job(tier="batch")
    assert len(dispatch([Room("w1", 8, interactive=1, batch=1, yielding=1)])) == 1
    (room,) = act(waiting.read_rooms)[MODEL]
    assert (room.interactive, room.batch, room.yielding) == (1, 2, 1)


def test_a_placed_job_is_not_offered_again_until_its_worker_kept_silent_for_long(make_job):
    make_job()
    assert len(dispatch()) == 1
    assert candidates().waiting == []
    with transaction() as session:
        session.execute(text("UPDATE jobs SET rung_at = now() - interval '1 minute'"))
    assert len(candidates().waiting) == 1


def test_a_job_that_is_placed_on_a_worker_that_is_gone_is_offered_at_once(make_job):
    make_job()
    dispatch()
    assert len(candidates([Room("w2", 8)]).waiting) == 1


def test_jobs_of_an_account_come_in_the_order_of_their_windows(make_job):
    day = make_job(tier="batch", completion_window="24h")
    hour = make_job(tier="batch", completion_window="1h")
    soon = make_job(tier="batch", completion_window="soonest")
    found = sorted(candidates().waiting, key=lambda job: job.order)
    assert [job.job_id for job in found] == [soon.id, hour.id, day.id]


def test_a_follow_up_keeps_the_place_of_its_session(make_job):
    first = make_job(session_id="s")
    others = [make_job() for _ in range(3)]
    follow_up = make_job(session_id="s")
    assert follow_up.order_at == first.order_at < others[0].order_at


def test_a_session_is_one_accounts_own(make_job):
    first = make_job(session_id="s")
    stranger = make_job(account="mallory", session_id="s")
    assert stranger.order_at > first.order_at


def test_a_session_that_was_silent_for_long_begins_anew(make_job, claim):
    first = make_job(session_id="s")
    claim(first)
    with transaction() as session:
        session.execute(
            text(
                "UPDATE jobs SET finished_at = now() - interval '1 hour', status = 'cancelled',"
                " lease_id = NULL, worker_id = NULL, lease_expires_at = NULL"
            )
        )
    assert make_job(session_id="s").order_at > first.order_at


def test_a_retry_that_is_not_due_is_not_offered(make_job):
    make_job()
    with transaction() as session:
        session.execute(text("UPDATE jobs SET available_at = now() + interval '1 minute'"))
    assert candidates().waiting == []


def test_long_prompts_do_not_hide_the_short_ones_behind_them(make_job):
    for _ in range(20):
        make_job()
    with transaction() as session:
        session.execute(text("UPDATE jobs SET is_long = true"))
    short = make_job()
    assert short.id in {job.job_id for job in candidates().waiting}


def test_all_accounts_are_offered_before_one_is_offered_twice(make_job):
    for _ in range(20):
        make_job(account="alice", tier="batch")
    make_job(account="bob", tier="batch")
    placed = dispatch([Room("w1", 2)])
    assert len({placement.job.account_id for placement in placed}) == 2


def test_an_account_that_comes_back_is_seen_however_many_others_wait(make_account, make_job):
    for n in range(20):
        make_job(account=f"other-{n}", tier="batch")
    dispatch([Room("w1", 1)])
    act(lambda session: session.execute(text("UPDATE shares SET is_active = true")))
    bob = make_account("bob")
    with transaction() as session:
        session.add(Share(account_id=bob.id, model=MODEL, tier=Tier.BATCH, virtual_tokens=5, is_active=False))
    job = make_job(account="bob", tier="batch")
    assert job.id in {job.job_id for job in candidates([Room("w1", 1)]).waiting}


def test_placing_charges_the_share_in_advance_and_the_ledger_corrects_it(make_account, make_job, claim):
    alice = make_account()
    job = make_job(tier="batch", prompt_tokens=10, max_output_tokens=90)
    dispatch()
    assert share(alice).virtual_tokens == 100
    move = claim(job, worker="w1")
    with transaction() as session:
        lifecycle.log.store_segments(session, [segment(move.job, 3, "five!")])
        lifecycle.complete(session, job.id, move.job.lease_id, lifecycle.Prefill(10, 0, 0.1))
    (booked,) = act(booking.book, 100)
    assert (booked.used_tokens, booked.reserved_tokens, booked.settled_tokens) == (15, 100, 15)
    assert share(alice).virtual_tokens == 15
    assert act(booking.book, 100) == []


def test_a_preempted_attempt_is_charged_once_and_the_next_one_not_again(make_account, make_job, claim):
    alice = make_account()
    job = make_job(tier="batch", prompt_tokens=10, max_output_tokens=90)
    dispatch()
    move = claim(job, worker="w1")
    with transaction() as session:
        lifecycle.log.store_segments(session, [segment(move.job, 3, "five!")])
        lifecycle.hand_back(
            session, job.id, move.job.lease_id, lifecycle.Prefill(10, 0, 0.1), lifecycle.RequeueReason.PREEMPTED
        )
    act(booking.book, 100)
    dispatch()
    move = claim(job, worker="w1")
    with transaction() as session:
        lifecycle.log.store_segments(session, [segment(move.job, 6, "more", offset=5)])
        lifecycle.complete(session, job.id, move.job.lease_id, lifecycle.Prefill(15, 0, 0.1))
    (booked,) = act(booking.book, 100)
    assert (booked.used_tokens, booked.settled_tokens) == (4, 19)
    assert share(alice).virtual_tokens == 19


def test_a_job_that_ends_while_it_waits_again_is_settled_in_its_last_row(make_account, make_job, claim):
    alice = make_account()
    job = make_job(tier="batch", prompt_tokens=10, max_output_tokens=90)
    dispatch()
    move = claim(job, worker="w1")
    with transaction() as session:
        lifecycle.log.store_segments(session, [segment(move.job, 3, "five!")])
        lifecycle.hand_back(
            session, job.id, move.job.lease_id, lifecycle.Prefill(10, 0, 0.1), lifecycle.RequeueReason.PREEMPTED
        )
    act(booking.book, 100)
    act(lifecycle.request_cancel, job.id)
    (booked,) = act(booking.book, 100)
    assert booked.settled_tokens == 15
    assert share(alice).virtual_tokens == 15
    assert act(lambda session: session.scalars(select(Usage.is_final)).all()) == [True]


def test_a_job_that_never_ran_is_settled_with_nothing(make_job):
    act(lifecycle.request_cancel, make_job(prompt_tokens=10).id)
    (booked,) = act(booking.book, 100)
    assert (booked.used_tokens, booked.settled_tokens, booked.run_seconds) == (0, 0, 0)


def test_an_account_that_comes_back_is_lifted_to_those_that_stayed(make_account, make_job):
    alice, bob = make_account("alice"), make_account("bob")
    for _ in range(5):
        make_job(account="alice", tier="batch", prompt_tokens=936)
    dispatch([Room("w1", 3)])
    assert share(alice).virtual_tokens == 3000
    make_job(account="bob", tier="batch", prompt_tokens=936)
    dispatch([Room("w1", 0)])
    with transaction() as session:
        found = waiting.read_candidates(session, MODEL, [ROOM])
        placing.welcome(session, MODEL, found.newcomers, found.accounts)
    assert found.accounts[bob.id].virtual_tokens[Tier.BATCH] == 3000


def test_an_account_that_left_keeps_what_it_was_given(make_account, make_job):
    alice = make_account()
    job = make_job(tier="batch")
    dispatch()
    act(lifecycle.request_cancel, job.id)
    act(placing.let_go, Tier.BATCH)
    assert share(alice).is_active is False
    assert share(alice).virtual_tokens == 72


def test_a_line_is_measured_by_account(add_worker, make_account, make_job):
    act(measuring.open_lines, [MODEL])
    add_worker("w1", slots=8)
    for _ in range(3):
        make_job(prompt_tokens=36)
    make_job(account="bob", prompt_tokens=136)
    rooms = act(waiting.read_rooms)
    now = act(lambda session: session.scalar(text("SELECT now()")))
    (interactive,) = act(measuring.measure, [MODEL], Tier.INTERACTIVE, rooms, Rates(), now)
    (batch,) = act(measuring.measure, [MODEL], Tier.BATCH, rooms, Rates(), now)
    act(measuring.keep, [interactive, batch])
    assert (interactive.jobs, interactive.tokens, batch.jobs) == (4, 500, 0)
    assert (interactive.slots, interactive.free_slots) == (8, 8)
    assert {a.jobs for a in interactive.accounts.values()} == {3, 1}
    stored = act(lambda session: session.get(Line, (MODEL, Tier.INTERACTIVE)))
    assert stored.measured["jobs"] == 4


def test_a_window_that_passes_before_the_start_expires_the_job(make_job):
    from app.jobs import rescue

    job = make_job(tier="batch", completion_window="1h")
    with transaction() as session:
        session.execute(text("UPDATE jobs SET expires_at = now(), due_at = now()"))
    (event,) = act(rescue.expire, 10)
    assert (event.job_id, event.type) == (job.id, Status.EXPIRED.event_type)


def test_a_window_that_passes_after_the_start_keeps_the_partial(make_job, claim):
    from app.jobs import rescue

    job = make_job(tier="batch", completion_window="1h")
    with transaction() as session:
        session.execute(text("UPDATE jobs SET due_at = now() + interval '1 ms', expires_at = due_at"))
        session.execute(text("UPDATE jobs SET expires_at = now() + interval '1 hour'"))
    move = claim(job)
    with transaction() as session:
        lifecycle.log.store_segments(session, [segment(move.job, 3, "five!")])
        lifecycle.hand_back(
            session, job.id, move.job.lease_id, lifecycle.Prefill(10, 0, 0.1), lifecycle.RequeueReason.PREEMPTED
        )
    (event,) = act(rescue.stop_overdue, 10)
    assert event.type == Status.INCOMPLETE.event_type
    assert event.data["incomplete_details"] == {"reason": IncompleteReason.COMPLETION_WINDOW}
    assert event.data["usage"]["output_tokens"] == 5


@pytest.fixture
def add_worker(clean):
    def add(worker_id, slots=8, seen_seconds_ago=0, *, draining=False):
        with transaction() as session:
            session.add(Worker(id=worker_id, model=MODEL, slots=slots, draining=draining))
            session.flush()
            session.execute(
                text("UPDATE workers SET seen_at = now() - make_interval(secs => :ago) WHERE id = :id"),
                {"ago": seen_seconds_ago, "id": worker_id},
            )

    return add
