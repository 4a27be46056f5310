"""What senders take in hand, what becomes of it, and that no receiver holds up another."""

import asyncio
import contextlib
import threading
from collections import Counter
from datetime import timedelta

import pytest
from sqlalchemy import func, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from app import clock
from app.db import transaction
from app.webhooks import delivering, endpoints, redelivering, retention
from app.webhooks.sending import Answer, Outcome, Sender
from app.webhooks.tables import Attempt, Delivery, DeliveryState, Endpoint, Message, Secret
from tests.eventually import eventually
from tests.integration.webhooks.conftest import CALLBACK, end, fan, told
from tests.receiver import Receiver, answer, hang
from workers.webhooks import Post

OK = Answer(200, None)
BROKEN = Answer(500, "The receiver answered 500.")
CUT = text(
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE pid <> pg_backend_pid() AND datname = current_database()"
)


def claim(limit=1000):
    with transaction() as session:
        return delivering.claim(session, limit)


def settle(claims, answered=OK):
    with transaction() as session:
        outcomes = [(claimed, Outcome(answered, clock.now(), 7)) for claimed in claims]
        delivering.settle(session, outcomes)


def send_tests(endpoint, count=1):
    with transaction() as session:
        found = session.get(Endpoint, endpoint.id)
        return [redelivering.send_test(session, found).id for _ in range(count)]


def deliveries(endpoint):
    with transaction() as session:
        return session.scalars(
            select(Delivery).where(Delivery.endpoint_id == endpoint.id).order_by(Delivery.id)
        ).all()


def states(endpoint):
    return Counter(str(delivery.state) for delivery in deliveries(endpoint))


def change(table, row, **values):
    with transaction() as session:
        session.execute(update(table).where(table.id == row).values(**values))


def make_due(endpoint):
    """All its pending deliveries, and the endpoint's pause is over."""
    with transaction() as session:
        session.execute(
            update(Delivery)
            .where(Delivery.endpoint_id == endpoint.id, Delivery.state == DeliveryState.PENDING)
            .values(next_attempt_at=func.now(), leased_until=None)
        )
        session.execute(update(Endpoint).where(Endpoint.id == endpoint.id).values(retry_at=None))


def seen(endpoint):
    with transaction() as session:
        return session.get(Endpoint, endpoint.id)


@pytest.fixture
def endpoint(make_endpoint):
    return make_endpoint()


def test_a_delivery_is_in_one_senders_hands(endpoint):
    [delivery_id] = send_tests(endpoint)
    [held] = claim()
    assert held.delivery_id == delivery_id
    assert held.letter.url == endpoint.url
    assert held.letter.secrets[0].startswith("whsec_")
    assert claim() == []


def test_two_senders_that_ask_at_once_share_what_there_is(endpoint, configure):
    configure(webhook_endpoint_concurrency=40)
    ids = send_tests(endpoint, 30)
    taken = []
    threads = [threading.Thread(target=lambda: taken.extend(claim(10))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(held.delivery_id for held in taken) == sorted(ids)


def test_a_success_ends_a_delivery_and_a_failure_makes_it_wait(endpoint):
    good, bad = send_tests(endpoint, 2)
    first, second = sorted(claim(), key=lambda held: held.delivery_id)
    settle([first])
    settle([second], BROKEN)
    delivered, pending = deliveries(endpoint)
    assert (delivered.id, delivered.state, delivered.attempts) == (good, DeliveryState.DELIVERED, 1)
    assert (pending.id, pending.state, pending.attempts) == (bad, DeliveryState.PENDING, 1)
    assert timedelta(0) < pending.next_attempt_at - delivered.ended_at < timedelta(seconds=60)
    assert claim() == []
    with transaction() as session:
        attempts = {attempt.delivery_id: attempt for attempt in session.scalars(select(Attempt))}
    assert (attempts[good].status_code, attempts[good].error, attempts[good].duration_ms) == (200, None, 7)
    assert (attempts[bad].status_code, attempts[bad].error) == (500, BROKEN.error)


def test_a_receiver_that_names_a_time_is_left_alone_until_then(endpoint):
    send_tests(endpoint, 6)
    settle(claim(1), Answer(429, "The receiver answered 429.", "", 40.0))
    assert claim() == []
    change(Endpoint, endpoint.id, retry_at=None)
    assert len(claim()) == 4
    tried = next(delivery for delivery in deliveries(endpoint) if delivery.attempts)
    with transaction() as session:
        left = session.scalar(select(Delivery.next_attempt_at - func.now()).where(Delivery.id == tried.id))
    assert timedelta(seconds=5) < left <= timedelta(seconds=40)


def test_ten_attempts_are_all_there_are(endpoint):
    send_tests(endpoint)
    for number in range(1, 11):
        make_due(endpoint)
        [held] = claim()
        settle([held], BROKEN)
        [delivery] = deliveries(endpoint)
        assert delivery.attempts == number
        assert (delivery.state is DeliveryState.FAILED) == (number == 10)
    make_due(endpoint)
    assert claim() == []
    with transaction() as session:
        assert session.scalars(select(Attempt.number).order_by(Attempt.number)).all() == list(range(1, 11))


def test_a_sender_that_dies_loses_nothing(endpoint):
    [delivery_id] = send_tests(endpoint)
    [lost] = claim()
    assert claim() == []
    past = func.now() - timedelta(seconds=1)
    change(Delivery, delivery_id, leased_until=past, next_attempt_at=past)
    [found] = claim()
    assert found.letter == lost.letter
    settle([found])
    assert states(endpoint) == {"delivered": 1}


def test_one_that_comes_back_too_late_changes_nothing(endpoint):
    [delivery_id] = send_tests(endpoint)
    [late] = claim()
    past = func.now() - timedelta(seconds=1)
    change(Delivery, delivery_id, leased_until=past, next_attempt_at=past)
    [held] = claim()
    settle([late], BROKEN)
    [delivery] = deliveries(endpoint)
    assert (delivery.attempts, delivery.leased_until) == (0, held.leased_until)
    assert seen(endpoint).failures == 0
    settle([held])
    settle([late], BROKEN)
    assert states(endpoint) == {"delivered": 1}


def test_what_a_sender_gives_back_is_due_at_once(endpoint):
    send_tests(endpoint)
    held = claim()
    with transaction() as session:
        delivering.release(session, held)
    assert len(claim()) == 1
    with transaction() as session:
        delivering.release(session, held)
    assert claim() == []


def test_an_endpoint_gets_a_few_at_a_time(endpoint, make_endpoint):
    other = make_endpoint(url="https://203.0.113.9/hook")
    send_tests(endpoint, 9)
    send_tests(other, 2)
    held = Counter(held.endpoint_id for held in claim())
    assert held == {endpoint.id: 4, other.id: 2}
    assert claim() == []


def test_one_that_fails_again_and_again_gets_one_now_and_then(endpoint):
    send_tests(endpoint, 20)
    settle(claim(), BROKEN)
    assert len(claim(1)) == 1
    make_due(endpoint)
    settle(claim(1), BROKEN)
    assert seen(endpoint).failures == 5
    assert claim() == []
    change(Endpoint, endpoint.id, retry_at=func.now())
    [probe] = claim()
    assert claim() == []
    settle([probe], BROKEN)
    assert claim() == []
    change(Endpoint, endpoint.id, retry_at=func.now())
    settle(claim())
    assert (seen(endpoint).failures, seen(endpoint).failing_since, seen(endpoint).retry_at) == (0, None, None)
    assert len(claim()) == 4


def test_an_account_with_many_endpoints_leaves_room_for_others(make_endpoint, configure):
    configure(webhook_concurrency=16)
    many = [make_endpoint(url=f"https://203.0.113.{number}/hook") for number in range(1, 9)]
    for one in many:
        send_tests(one, 4)
    outsider = make_endpoint(account="mallory")
    send_tests(outsider, 2)
    held = Counter(held.endpoint_id == outsider.id for held in claim(16))
    assert held == {False: 4, True: 2}
    assert claim(16) == []


def test_a_receiver_that_is_gone_is_told_nothing_more(endpoint, make_endpoint):
    other = make_endpoint(url="https://203.0.113.9/hook")
    send_tests(endpoint, 6)
    held = claim()
    settle(held[:1], Answer(410, "The receiver answered 410."))
    assert states(endpoint) == {"failed": 1, "discarded": 5}
    assert seen(endpoint).disabled_reason == delivering.GONE
    assert claim(1)[0].endpoint_id == other.id
    [message] = [message for delivery, message in told() if delivery.endpoint_id == other.id]
    assert message.type == "webhook_endpoint.disabled"
    assert message.subject == endpoint.id
    settle(held[1:])
    assert states(endpoint) == {"failed": 1, "discarded": 5}


def test_days_of_nothing_but_failures_disable_an_endpoint(endpoint):
    send_tests(endpoint, 3)
    settle(claim(1), BROKEN)
    assert seen(endpoint).disabled_at is None
    change(Endpoint, endpoint.id, failing_since=func.now() - timedelta(days=5, seconds=1))
    make_due(endpoint)
    settle(claim(1), BROKEN)
    assert seen(endpoint).disabled_reason == "Every attempt failed for 5 days."
    assert states(endpoint) == {"discarded": 3}
    with transaction() as session:
        endpoints.enable(session, session.get(Endpoint, endpoint.id))
    send_tests(endpoint)
    assert len(claim()) == 1


def test_a_success_among_the_failures_begins_the_days_anew(endpoint):
    send_tests(endpoint, 3)
    change(Endpoint, endpoint.id, failures=3, failing_since=func.now() - timedelta(days=5, seconds=1))
    good, bad, _ = claim()
    with transaction() as session:
        outcomes = [(good, Outcome(OK, clock.now(), 1)), (bad, Outcome(BROKEN, clock.now(), 1))]
        delivering.settle(session, outcomes)
    assert seen(endpoint).disabled_at is None
    assert seen(endpoint).failures == 1


def test_a_webhook_url_is_signed_with_the_accounts_secret(make_account_secret, make_told):
    secret = make_account_secret()
    end(make_told(webhook_url=CALLBACK))
    fan()
    [held] = claim()
    assert (held.letter.url, held.letter.secrets) == (CALLBACK, (secret,))


def test_an_endpoint_that_is_deleted_meanwhile_takes_its_deliveries_with_it(endpoint):
    send_tests(endpoint, 2)
    held = claim()
    with transaction() as session:
        endpoints.drop(session, endpoint.account_id, endpoint.id)
    settle(held[:1])
    settle(held[1:], Answer(410, "The receiver answered 410."))
    assert deliveries(endpoint) == []


def test_what_is_old_goes_but_for_what_is_still_to_be_sent(endpoint, make_account_secret, make_told):
    make_account_secret()
    end(make_told(webhook_url=CALLBACK))
    fan()
    settle(claim())
    send_tests(endpoint, 2)
    settle(claim(1))
    with transaction() as session:
        old = func.now() - timedelta(days=40)
        session.execute(update(Message).values(created_at=old))
        session.execute(update(Endpoint).values(created_at=old))
        session.execute(update(Secret).where(Secret.endpoint_id.is_(None)).values(expires_at=old))
        [pending] = session.scalars(select(Delivery.id).where(Delivery.state == DeliveryState.PENDING))
    for _ in range(2):
        with transaction() as session:
            retention.drop_old(session, timedelta(days=30), 100)
    with transaction() as session:
        assert session.scalars(select(Delivery.id)).all() == [pending]
        assert session.scalar(select(func.count()).select_from(Message)) == 1
        assert session.scalars(select(Endpoint.id)).all() == [endpoint.id]
        assert session.scalars(select(Secret.endpoint_id)).all() == [endpoint.id]


@pytest.fixture
def post(clean, configure):
    """A sender, running on a thread of its own."""
    configure(
        webhook_allowed_hosts=["127.0.0.0/8"],
        webhook_timeout_seconds=3,
        webhook_concurrency=40,
        webhook_endpoint_concurrency=4,
    )
    started = Post(Sender())
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(started.run(),))
    thread.start()
    yield started
    loop.call_soon_threadsafe(started.stop)
    thread.join(30)
    assert not thread.is_alive()
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def test_one_slow_receiver_holds_nobody_else(make_endpoint, post):
    with Receiver() as slow, Receiver() as quick:
        slow.usual = hang
        stuck, free = make_endpoint(url=slow.url()), make_endpoint(url=quick.url())
        send_tests(stuck, 30)
        eventually(lambda: slow.connections == 4, 20)
        ids = set(send_tests(free, 30))
        eventually(lambda: states(free) == {"delivered": 30}, 20)
        assert len(ids) == len(set(quick.ids)) == len(quick.ids)
        assert quick.most_under_way <= 4
        assert slow.most_under_way <= 4
        assert states(stuck) == {"pending": 30}


def test_a_receiver_that_comes_back_gets_all_it_missed(make_endpoint, post):
    with Receiver() as receiver:
        receiver.usual = answer(503, b"Down.", retry_after="0")
        endpoint = make_endpoint(url=receiver.url())
        send_tests(endpoint, 3)
        eventually(lambda: all(delivery.attempts for delivery in deliveries(endpoint)), 20)
        receiver.usual = answer(204)
        make_due(endpoint)
        eventually(lambda: states(endpoint) == {"delivered": 3}, 20)
        assert set(Counter(receiver.ids).values()) != {1}
        assert len(set(receiver.ids)) == 3


def test_a_database_that_went_away_for_a_moment_costs_no_delivery(make_endpoint, post):
    with Receiver() as receiver:
        endpoint = make_endpoint(url=receiver.url())
        for turn in range(3):
            eventually(lambda: _despite_cuts(lambda: send_tests(endpoint, 4)), 20)
            eventually(lambda turn=turn: len(receiver.received) > 4 * turn, 20)
            _despite_cuts(lambda: _run(CUT))
        eventually(lambda: _despite_cuts(lambda: states(endpoint)) == {"delivered": 12}, 60)
    assert len(set(receiver.ids)) == 12


def _run(statement):
    with transaction() as session:
        session.execute(statement)


def _despite_cuts(act):
    """None where this test's own connection was among those cut."""
    with contextlib.suppress(SQLAlchemyError):
        return act()


def test_asked_to_stop_it_finishes_what_it_can_and_gives_back_the_rest(
    make_endpoint, post, configure, monkeypatch
):
    monkeypatch.setattr("workers.webhooks.STOP_SECONDS", 0.5)
    with Receiver() as receiver:
        endpoint = make_endpoint(url=receiver.url())
        configure(webhook_timeout_seconds=60)
        receiver.answers += [hang]
        send_tests(endpoint)
        eventually(lambda: receiver.connections == 1, 20)
        post.stop()
        eventually(lambda: [delivery.leased_until for delivery in deliveries(endpoint)] == [None], 30)
        assert states(endpoint) == {"pending": 1}
        assert len(claim()) == 1
