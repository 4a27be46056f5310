"""`POST /v1/jobs` at the gate: rates, bounds, windows, and Redis away."""

import socket

import pytest
from redis import Redis
from sqlalchemy import func, select, text

from app import tokens
from app.accounts import keys
from app.api import submitting
from app.db import transaction
from app.dispatch import messages_waiting
from app.gate.admission import publish
from app.gate.offline import Breaker, LocalBound
from app.jobs.queries import find_job
from app.jobs.requests import JobRequest
from app.jobs.tables import Job
from app.line.tables import LineState
from app.redis import client
from config.catalogue import catalogue
from config.queues import Tier, Window
from config.settings import settings
from tests.integration.gate.gate import MODEL, measure

SPEC = catalogue()[MODEL]
MOST = SPEC.line[Tier.INTERACTIVE].max_jobs


def prompt_of(count):
    """A prompt of exactly so many tokens."""
    words = []
    while (
        short := count - tokens.count(SPEC, JobRequest(model=MODEL, input=" ".join(words) or "a").prompt)
    ) > 0:
        words += ["a"] * max(1, short // 2)
    return " ".join(words)


def limit(account="alice", key=None, **columns):
    """Set limits of an account (or of its keys, with `key`), before it is known to the web process."""
    with transaction() as session:
        found = keys.find_account(session, account)
        rows = [found] if key is None else [k for k, _ in keys.list_keys(session) if k.account_id == found.id]
        for row in rows:
            for name, value in columns.items():
                setattr(row, name, value)


def stored(job_id):
    with transaction() as session:
        return find_job(session, job_id)


def jobs_stored():
    with transaction() as session:
        return session.scalar(select(func.count()).select_from(Job))


@pytest.fixture
def redis_away(monkeypatch):
    """A gate whose Redis does not answer: nobody listens at its port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        away = Redis(port=taken.getsockname()[1], socket_connect_timeout=0.25, retry=None)
        monkeypatch.setattr(submitting, "quick_client", lambda: away)
        monkeypatch.setattr(submitting, "_breaker", Breaker())
        monkeypatch.setattr(submitting, "_offline", LocalBound())
        yield


def test_an_accepted_job_says_what_is_left_of_the_rates(alice):
    limit(requests_per_minute=60, tokens_per_minute=6000)
    answer = alice.submit(max_output_tokens=100)
    assert answer.status_code == 202
    needed = stored(answer.json["id"]).reserved_tokens
    assert needed > 100
    rates = {name: value for name, value in answer.headers if name.startswith("x-ratelimit-")}
    assert rates.pop("x-ratelimit-reset-tokens")[-1] == "s"
    assert rates == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "6000",
        "x-ratelimit-remaining-tokens": str(6000 - needed),
    }


def test_what_has_no_limit_has_no_header(alice):
    limit(requests_per_minute=0, tokens_per_minute=0)
    answer = alice.submit()
    assert answer.status_code == 202
    assert not [name for name, _ in answer.headers if name.startswith("x-ratelimit-")]


def test_too_many_requests_are_429_with_a_time_to_come_back(alice):
    limit(requests_per_minute=2)
    answers = [alice.submit() for _ in range(3)]
    assert [answer.status_code for answer in answers] == [202, 202, 429]
    last = answers[-1]
    assert last.json["error"]["type"] == "rate_limit_error"
    assert last.json["error"]["code"] == "rate_limit_exceeded"
    assert 29 <= int(last.headers["Retry-After"]) <= 39
    assert 29_000 <= int(last.headers["retry-after-ms"]) <= 39_000
    assert "x-should-retry" not in last.headers
    assert last.headers["x-ratelimit-remaining-requests"] == "0"
    assert jobs_stored() == 2


def test_a_keys_own_limit_holds_besides_its_accounts(alice):
    limit(key=True, requests_per_minute=1)
    assert [alice.submit().status_code for _ in range(2)] == [202, 429]


def test_a_job_that_no_minute_has_room_for_is_not_to_be_retried(alice):
    limit(tokens_per_minute=50)
    answer = alice.submit(max_output_tokens=64)
    assert answer.status_code == 429
    assert answer.headers["x-should-retry"] == "false"
    assert "Retry-After" not in answer.headers
    assert "50" in answer.json["error"]["message"]


def test_one_account_at_its_limit_does_not_hold_up_another(alice, mallory):
    limit("mallory", requests_per_minute=1)
    assert [mallory.submit().status_code for _ in range(3)] == [202, 429, 429]
    assert [alice.submit().status_code for _ in range(3)] == [202] * 3


def test_a_full_line_is_429_and_a_drained_one_503(alice):
    publish(client(), [measure(jobs=MOST)], {})
    answer = alice.submit()
    assert (answer.status_code, answer.json["error"]["code"]) == (429, "line_full")
    assert int(answer.headers["Retry-After"]) >= 5
    publish(client(), [measure(state=LineState.DRAINING)], {})
    answer = alice.submit()
    assert (answer.status_code, answer.json["error"]["code"]) == (503, "line_draining")
    assert int(answer.headers["Retry-After"]) >= 30
    assert jobs_stored() == 0


def test_a_repetition_is_never_refused(alice):
    limit(requests_per_minute=1)
    first = alice.submit(headers={"Idempotency-Key": "once"})
    publish(client(), [measure(jobs=MOST, state=LineState.DRAINING)], {})
    again = alice.submit(headers={"Idempotency-Key": "once"})
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json["id"] == again.json["id"]
    assert alice.submit(headers={"Idempotency-Key": "twice"}).status_code == 503


def test_the_loser_of_a_race_gives_back_what_it_took(alice, monkeypatch):
    limit(tokens_per_minute=10_000)
    publish(client(), [], {MODEL: {"w1": 1}})
    first = alice.submit(headers={"Idempotency-Key": "once"})
    assert stored(first.json["id"]).placed_on == "w1"
    left = int(first.headers["x-ratelimit-remaining-tokens"])
    publish(client(), [], {MODEL: {"w1": 1}})
    # The first was not there yet when the second looked.
    monkeypatch.setattr(submitting, "_earlier", lambda *_: None)
    again = alice.submit(headers={"Idempotency-Key": "once"})
    assert (again.status_code, again.json["id"]) == (200, first.json["id"])
    assert client().zscore(f"lh:room:{MODEL}", "w1") == 1
    monkeypatch.undo()
    third = alice.submit()
    assert int(third.headers["x-ratelimit-remaining-tokens"]) > 2 * left - 10_000 - 1


def test_a_job_that_was_not_stored_gives_back_what_it_took(alice):
    limit(tokens_per_minute=10_000)
    publish(client(), [], {MODEL: {"w1": 1}})
    alice.get("/v1/models")
    with transaction() as session:
        session.execute(text("ALTER TABLE jobs ADD CONSTRAINT refuse CHECK (false) NOT VALID"))
    try:
        assert alice.submit().status_code == 500
    finally:
        with transaction() as session:
            session.execute(text("ALTER TABLE jobs DROP CONSTRAINT refuse"))
    assert client().zscore(f"lh:room:{MODEL}", "w1") == 1
    assert client().keys("lh:reserved:*") == []


def test_a_worker_with_room_is_rung_at_once_and_one_without_is_not(alice):
    publish(client(), [], {MODEL: {"w1": 1}})
    placed, waiting = (stored(alice.submit().json["id"]) for _ in range(2))
    assert (placed.placed_on, waiting.placed_on) == ("w1", None)
    assert messages_waiting("w1", Tier.INTERACTIVE) == 1
    assert stored(alice.submit(tier="batch").json["id"]).placed_on is None


def test_a_job_has_what_the_line_needs_to_know_of_it(alice):
    one = stored(alice.submit(completion_window="8h", session_id="s", max_output_tokens=10).json["id"])
    assert (one.tier, one.completion_window, float(one.price_factor)) == ("batch", "8h", 0.6)
    assert one.session_id == "s"
    assert one.prompt_tokens > 0
    assert one.reserved_tokens == one.prompt_tokens + 10
    assert one.key_id
    assert not one.is_long
    long = stored(alice.submit(input=prompt_of(SPEC.long_prompt_tokens + 2), max_output_tokens=1).json["id"])
    assert long.prompt_tokens == SPEC.long_prompt_tokens + 2
    assert long.is_long


def test_a_window_that_cannot_be_met_is_refused_or_taken_as_the_account_says(alice, mallory, make_account):
    limit("mallory", accepts_late_windows=True)
    hour = (1, 10_000_000, 1.0, {Window.ONE_HOUR: 10_000_000})
    waiting = {make_account(name).id: hour for name in ("alice", "mallory")}
    line = measure(Tier.BATCH, jobs=2, tokens=20_000_000, tokens_per_second=1000.0, accounts=waiting)
    publish(client(), [line], {})
    answer = alice.submit(completion_window="1h")
    assert (answer.status_code, answer.json["error"]["code"]) == (429, "completion_window_unavailable")
    assert answer.json["error"]["param"] == "completion_window"
    assert answer.headers["x-should-retry"] == "false"
    assert alice.submit(completion_window="8h").status_code == 202
    assert mallory.submit(completion_window="1h").status_code == 202


def test_output_beyond_what_the_model_makes_is_refused_with_both_numbers(alice):
    most = SPEC.max_output_tokens
    for param in ("max_output_tokens", "min_output_tokens"):
        answer = alice.submit(**{param: most + 1})
        assert answer.status_code == 400
        assert answer.json["error"]["param"] == param
        assert str(most) in answer.json["error"]["message"]
        assert str(most + 1) in answer.json["error"]["message"]


def test_a_prompt_without_room_for_its_answer_is_too_long_and_nothing_is_taken(alice):
    limit(requests_per_minute=1)
    context = SPEC.context_tokens
    answer = alice.submit(max_output_tokens=context)
    assert (answer.status_code, answer.json["error"]["code"]) == (400, "context_length_exceeded")
    assert str(context) in answer.json["error"]["message"]
    assert alice.submit().status_code == 202


def test_a_long_prompt_gets_the_output_that_there_is_room_for(alice):
    one = stored(alice.submit(input=prompt_of(SPEC.context_tokens - 30)).json["id"])
    assert one.request["max_output_tokens"] == 30 < SPEC.default_output_tokens


def test_without_redis_jobs_are_accepted_up_to_a_bound_and_read(alice, mallory, redis_away):
    limit(requests_per_minute=3)
    answers = [alice.submit() for _ in range(5)]
    assert [answer.status_code for answer in answers] == [202] * 3 + [429] * 2
    assert answers[-1].json["error"]["code"] == "rate_limit_exceeded"
    assert 20 <= int(answers[-1].headers["Retry-After"]) <= 26
    assert stored(answers[0].json["id"]).placed_on is None
    assert mallory.submit().status_code == 202
    assert alice.get(f"/v1/jobs/{answers[0].json['id']}").json["status"] == "queued"


def test_without_redis_an_account_without_limits_has_the_local_one(alice, make_account, redis_away):
    limit(requests_per_minute=0)
    allowed, account_id = settings().offline_requests_per_minute, make_account("alice").id
    for _ in range(allowed):
        submitting._offline.admit(account_id, allowed)
    assert alice.submit().status_code == 429


def test_when_redis_is_back_the_gate_is_asked_again(alice, redis_away, monkeypatch):
    limit(requests_per_minute=5)
    assert "x-ratelimit-limit-requests" not in alice.submit().headers
    monkeypatch.setattr(submitting, "quick_client", client)
    monkeypatch.setattr(submitting, "_breaker", Breaker())
    assert alice.submit().headers["x-ratelimit-limit-requests"] == "5"
