"""The dispatcher's rounds, and who leads."""

import threading

import pytest
from sqlalchemy import text

from app.db import engine, transaction
from app.dispatch import messages_waiting
from app.gate import admission
from app.jobs import lifecycle
from app.jobs.tables import Worker
from app.line import control
from app.line.tables import LineState
from app.redis import client
from config.queues import Tier
from tests.eventually import eventually
from tests.integration.workers.conftest import reload
from workers.dispatcher import Dispatcher
from workers.leadership import DISPATCHER_LOCK, Leadership

MODEL = "faulty"


@pytest.fixture
def add_worker(clean):
    def add(worker_id, slots=8):
        with transaction() as session:
            session.add(Worker(id=worker_id, model=MODEL, slots=slots))

    return add


@pytest.fixture
def dispatcher(clean):
    """One that leads; the test calls `round`."""
    made = Dispatcher()
    assert made.lead()
    yield made
    made.resign()


@pytest.fixture
def running(clean):
    """`running()` starts a dispatcher on a thread."""
    started = []

    def start():
        made = Dispatcher()
        thread = threading.Thread(target=made.run)
        thread.start()
        started.append((made, thread))
        return made

    yield start
    for made, thread in started:
        made.stop()
        thread.join(10)
        assert not thread.is_alive()


def test_a_round_places_jobs_where_there_is_room_and_rings_there(dispatcher, add_worker, make_job):
    add_worker("w1", slots=2)
    jobs = [make_job(tier="batch") for _ in range(3)]
    dispatcher.round()
    assert [reload(job).placed_on for job in jobs] == ["w1", "w1", None]
    assert messages_waiting("w1", Tier.BATCH) == 2


def test_another_round_rings_for_nobody_twice(dispatcher, add_worker, make_job):
    add_worker("w1", slots=2)
    make_job()
    for _ in range(3):
        dispatcher.round()
    assert messages_waiting("w1", Tier.INTERACTIVE) == 1


def test_without_a_worker_nobody_is_rung_for(dispatcher, make_job):
    job = make_job()
    dispatcher.round()
    assert reload(job).placed_on is None


def test_a_paused_line_takes_jobs_and_starts_none(dispatcher, add_worker, make_job):
    add_worker("w1")
    with transaction() as session:
        control.set_state(session, MODEL, Tier.BATCH, LineState.PAUSED)
    batch, chat = make_job(tier="batch"), make_job()
    dispatcher.round()
    assert (reload(batch).placed_on, reload(chat).placed_on) == (None, "w1")
    with transaction() as session:
        control.set_state(session, MODEL, Tier.BATCH, LineState.OPEN)
    dispatcher.round()
    assert reload(batch).placed_on == "w1"


def test_the_gate_learns_who_has_room(dispatcher, add_worker, make_account):
    add_worker("w1", slots=1)
    dispatcher.round()
    first, second = (admission.admit(client(), entry(make_account(), n)) for n in range(2))
    assert (first.worker_id, second.worker_id) == ("w1", None)
    dispatcher.round()
    assert admission.admit(client(), entry(make_account(), 3)).worker_id == "w1"


def test_an_ended_job_is_settled_at_the_gate(dispatcher, make_account, make_job):
    from app.accounts.limits import Limits

    alice = make_account()
    dispatcher.round()
    job = make_job(prompt_tokens=36)
    limits = Limits(tokens_per_minute=100_000)

    def remaining(n):
        return admission.admit(client(), entry(alice, n, tokens=1, limits=limits)).rates.tokens.remaining

    admission.admit(client(), entry(alice, 0, job_id=job.id, tokens=50_000, limits=limits))
    assert remaining(1) < 51_000
    with transaction() as session:
        lifecycle.request_cancel(session, job.id)
    dispatcher.round()
    assert remaining(2) > 99_000


def test_the_gate_is_rebuilt_after_redis_lost_it(dispatcher, make_account):
    dispatcher.round()
    client().flushdb()
    assert admission.needs_rebuild(client())
    dispatcher.round()
    assert not admission.needs_rebuild(client())


def entry(account, number, **fields):
    from config.queues import Window

    fields = {
        "job_id": f"job_{number:032x}",
        "account_id": account.id,
        "key_id": None,
        "model": MODEL,
        "tier": Tier.INTERACTIVE,
        "window": Window.SOONEST,
        "tokens": 10,
        **fields,
    }
    return admission.Entry(**fields)


def test_one_leads_and_another_takes_over_when_its_connection_ends(clean):
    first, second = Leadership(DISPATCHER_LOCK), Leadership(DISPATCHER_LOCK)
    assert first.is_mine()
    assert not second.is_mine()
    assert first.is_mine()
    with engine().connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
                " AND pid <> pg_backend_pid()"
            )
        )
    eventually(second.is_mine, 5, "the second leads")
    first.drop()
    second.drop()


def test_two_running_dispatchers_place_each_job_once(running, add_worker, make_job):
    add_worker("w1", slots=8)
    for _ in range(2):
        running()
    jobs = [make_job(tier="batch") for _ in range(6)]
    eventually(lambda: all(reload(job).placed_on for job in jobs), 10, "all are placed")
    assert messages_waiting("w1", Tier.BATCH) == 6
