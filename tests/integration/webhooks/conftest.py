"""Endpoints of accounts, and jobs and batches that end while those listen."""

from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from sqlalchemy import select, update

from app.db import transaction
from app.jobs import lifecycle
from app.jobs.lifecycle import Prefill
from app.jobs.states import IncompleteReason
from app.jobs.tables import Job
from app.webhooks import endpoints, secrets
from app.webhooks.fanout import fan_out
from app.webhooks.tables import Delivery, Endpoint, Message, Scheme
from config.settings import settings

URL = "https://203.0.113.1/hook"
CALLBACK = "https://203.0.113.2/callback"


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """`configure(webhook_timeout_seconds=1)` changes settings for one test."""

    def change(**values: Any) -> None:
        for name, value in values.items():
            monkeypatch.setenv(f"LONGHAUL_{name.upper()}", orjson.dumps(value).decode())
        settings.cache_clear()

    yield change
    monkeypatch.undo()
    settings.cache_clear()


@pytest.fixture
def make_endpoint(make_account: Callable[..., Any]) -> Callable[..., Endpoint]:
    """`make_endpoint(*events, account="alice", url=URL, scheme="v1")`; no events are the usual ones."""

    def make(*events: str, account: str = "alice", url: str = URL, scheme: str = "v1") -> Endpoint:
        owner = make_account(account)
        named = {"events": list(events)} if events else {}
        with transaction() as session:
            draft = endpoints.Draft(url, scheme=Scheme(scheme), **named)
            return endpoints.create(session, owner.id, draft)[0]

    return make


@pytest.fixture
def make_account_secret(make_account: Callable[..., Any]) -> Callable[..., str]:
    """`make_account_secret()` gives alice's account a secret for its `webhook_url`s."""

    def make(account: str = "alice") -> str:
        owner = make_account(account)
        with transaction() as session:
            return secrets.rotate(session, owner.id, None, Scheme.HMAC, 0).secret

    return make


@pytest.fixture
def make_told(make_job: Callable[..., Any]) -> Callable[..., Job]:
    """`make_told(webhook_url=CALLBACK, surface="responses", ...)`: a queued job with these columns."""

    def make(account: str = "alice", **columns: Any) -> Job:
        job = make_job(account=account)
        with transaction() as session:
            if columns:
                session.execute(update(Job).where(Job.id == job.id).values(**columns))
            return session.get(Job, job.id)

    return make


VERBS = {
    "complete": lambda session, job: lifecycle.complete(session, job.id, job.lease_id, Prefill(3, 0, 0.0)),
    "stop_early": lambda session, job: lifecycle.stop_early(
        session, job.id, job.lease_id, Prefill(3), IncompleteReason.MAX_OUTPUT_TOKENS
    ),
    "fail": lambda session, job: lifecycle.fail(
        session, job.id, job.lease_id, Prefill(3), "engine_error", "It broke."
    ),
    "cancel": lambda session, job: lifecycle.cancel(session, job.id, job.lease_id, Prefill(3)),
}


def end(job: Job, verb: str = "complete") -> None:
    """Claim a job, and end it."""
    with transaction() as session:
        claimed = lifecycle.claim(session, job.id, "played", 60)
        assert claimed
        assert VERBS[verb](session, claimed.job)


def fan() -> int:
    with transaction() as session:
        return fan_out(session, 100)


def told() -> list[tuple[Delivery, Message]]:
    """Every delivery with its message, oldest first."""
    with transaction() as session:
        rows = session.execute(
            select(Delivery, Message).join(Message, Message.id == Delivery.message_id).order_by(Delivery.id)
        )
        return [(delivery, message) for delivery, message in rows]
