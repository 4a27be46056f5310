"""What operators do to the line."""

from datetime import timedelta
from decimal import Decimal

import pytest
from sqlalchemy import select, text, update

from app import clock
from app.db import transaction
from app.ids import new_id
from app.jobs import lifecycle
from app.jobs.errors import IllegalTransition, JobNotFound, ModelNotFound, RequestInvalid
from app.jobs.queries import find_job
from app.jobs.tables import Job
from app.line.control import Before, Changed, End, move_job, set_state, set_tier
from app.line.placing import charge
from app.line.tables import Line, LineState
from config.queues import Tier, Window


@pytest.fixture
def wait(make_job):
    def make(minutes_ago, account="alice", **columns):
        job = make_job(account, tier=columns.pop("tier", "batch"))
        columns = {"order_at": clock.now() - timedelta(minutes=minutes_ago), **columns}
        with transaction() as session:
            session.execute(update(Job).where(Job.id == job.id).values(columns))
        return job.id

    return make


def call(verb, *args):
    with transaction() as session:
        return verb(session, *args)


def order():
    """The jobs of the batch line as they stand."""
    with transaction() as session:
        return list(
            session.scalars(select(Job.id).where(Job.tier == Tier.BATCH).order_by(Job.order_at, Job.id))
        )


def stored(job_id):
    with transaction() as session:
        return find_job(session, job_id)


def states():
    with transaction() as session:
        return {line.tier: line.state for line in session.scalars(select(Line))}


def test_a_line_changes_its_state_and_says_what_it_was(clean):
    assert call(set_state, "faulty", Tier.BATCH, LineState.PAUSED) == [
        Changed("faulty", Tier.BATCH, LineState.OPEN, LineState.PAUSED)
    ]
    assert states() == {Tier.BATCH: LineState.PAUSED}
    changed = call(set_state, "faulty", None, LineState.DRAINING)
    assert [(change.tier, change.was) for change in changed] == [
        (Tier.INTERACTIVE, LineState.OPEN),
        (Tier.BATCH, LineState.PAUSED),
    ]
    assert set(states().values()) == {LineState.DRAINING}


def test_a_state_keeps_what_was_measured(clean):
    with transaction() as session:
        session.add(Line(model="faulty", tier=Tier.BATCH, measured={"jobs": 3}, virtual_clock=7.0))
    call(set_state, "faulty", Tier.BATCH, LineState.PAUSED)
    with transaction() as session:
        line = session.scalars(select(Line)).one()
    assert (line.measured, line.virtual_clock, line.state) == ({"jobs": 3}, 7.0, LineState.PAUSED)


def test_a_model_that_is_not_known_has_no_line(clean):
    with pytest.raises(ModelNotFound):
        call(set_state, "nonsense", None, LineState.PAUSED)


def test_a_job_goes_to_the_front_to_the_back_or_before_another(wait):
    first, second, third = wait(3), wait(2, is_long=True), wait(1)
    assert call(move_job, third, End.FRONT) == 0
    assert order() == [third, first, second]
    assert call(move_job, third, End.BACK) == 2
    assert order() == [first, second, third]
    assert call(move_job, third, Before(second)) == 1
    assert order() == [first, third, second]


def test_a_job_that_is_alone_stays_where_it_is(wait):
    job_id = wait(3)
    wait(9, account="bob")
    before = stored(job_id).order_at
    assert [call(move_job, job_id, end) for end in End] == [0, 0]
    assert stored(job_id).order_at == before


def test_moving_a_job_changes_neither_its_window_nor_when_it_expires(wait):
    ends = clock.now() + timedelta(hours=1)
    wait(9)
    job_id = wait(3, due_at=ends, expires_at=ends, completion_window=Window.ONE_HOUR)
    call(move_job, job_id, End.FRONT)
    assert (stored(job_id).due_at, stored(job_id).expires_at) == (ends, ends)


def test_jobs_of_different_accounts_or_tiers_do_not_stand_before_one_another(wait):
    job_id = wait(1)
    for other in (wait(2, account="bob"), wait(2, tier="interactive"), job_id):
        with pytest.raises(RequestInvalid) as refused:
            call(move_job, job_id, Before(other))
        assert refused.value.param == "before"


def test_only_a_job_that_waits_can_be_moved(wait):
    running, waiting, ringing = wait(3), wait(2), wait(1, placed_on="w", rung_at=clock.now())
    with transaction() as session:
        lifecycle.claim(session, running, "w", 60)
    for verb in (move_job, set_tier):
        argument = End.FRONT if verb is move_job else Tier.INTERACTIVE
        with pytest.raises(IllegalTransition, match="is in_progress"):
            call(verb, running, argument)
        with pytest.raises(IllegalTransition, match="is about to start"):
            call(verb, ringing, argument)
        for unknown in ("nonsense", new_id("job")):
            with pytest.raises(JobNotFound):
                call(verb, unknown, argument)
    with pytest.raises(IllegalTransition):
        call(move_job, waiting, Before(running))
    with pytest.raises(JobNotFound):
        call(move_job, waiting, Before(new_id("job")))


def test_a_job_that_was_rung_in_vain_can_be_moved(wait):
    wait(3)
    assert call(move_job, wait(1, placed_on="gone", rung_at=clock.now() - timedelta(minutes=1)), End.FRONT) == 0


def test_a_job_that_becomes_interactive_keeps_its_price_and_its_window(wait):
    ends = clock.now() + timedelta(hours=24)
    job_id = wait(
        -24 * 60, due_at=ends, expires_at=ends, completion_window=Window.ONE_DAY, price_factor=Decimal("0.5")
    )
    assert call(set_tier, job_id, Tier.INTERACTIVE) is True
    assert call(set_tier, job_id, Tier.INTERACTIVE) is False
    job = stored(job_id)
    assert (job.tier, job.price_factor, job.order_at) == (Tier.INTERACTIVE, Decimal("0.5"), job.created_at)
    assert (job.completion_window, job.due_at, job.expires_at) == (Window.ONE_DAY, ends, ends)
    # And back: where its window ends.
    call(set_tier, job_id, Tier.BATCH)
    assert stored(job_id).order_at == ends


def test_what_its_account_was_charged_in_the_line_that_it_leaves_is_given_back(wait):
    job_id = wait(1, charged_tokens=300)
    job = stored(job_id)
    with transaction() as session:
        charge(session, {(job.account_id, "faulty", Tier.BATCH): 1000.0})
    call(set_tier, job_id, Tier.INTERACTIVE)
    with transaction() as session:
        shares = session.execute(text("SELECT tier, virtual_tokens FROM shares")).all()
    assert (shares, stored(job_id).charged_tokens) == ([("batch", 700.0)], 0)
