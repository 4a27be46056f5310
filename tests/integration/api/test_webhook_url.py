"""`webhook_url` on every surface: taken where it may be called and can be signed for, else refused by name."""

import pytest
from sqlalchemy import delete, func, select

from app.db import transaction
from app.jobs.tables import Job
from app.webhooks.tables import Secret

# An address, so that no test asks the name service.
HOOK = "https://93.184.216.34/hook"
PRIVATE = "https://10.0.0.1/hook"
CHAT = {"model": "faulty", "messages": [{"role": "user", "content": "Hi"}]}
BODIES = {
    "/v1/jobs": {"model": "faulty", "input": "Hi"},
    "/v1/responses": {"model": "faulty", "input": "Hi", "background": True},
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": "faulty", "prompt": "Hi"},
}


@pytest.fixture
def signing(alice):
    """Alice's account has a secret."""
    assert alice.post("/v1/webhooks/secret/rotate", {}).status_code in {200, 201}


def stored():
    with transaction() as session:
        return session.scalar(select(func.count()).select_from(Job))


def told_at():
    with transaction() as session:
        return session.scalars(select(Job.webhook_url)).all()


def test_a_job_says_where_it_will_be_told_of(alice, signing):
    job = alice.submit(webhook_url=HOOK).json
    assert alice.get(job["urls"]["self"]).json["webhook_url"] == HOOK
    assert told_at() == [HOOK]


@pytest.mark.parametrize("path", BODIES)
def test_without_a_secret_nothing_could_be_signed(alice, path):
    answer = alice.post(path, {**BODIES[path], "webhook_url": HOOK})
    assert (answer.status_code, answer.json["error"]["code"]) == (400, "webhook_secret_missing")
    assert answer.json["error"]["param"] == "webhook_url"
    assert stored() == 0


@pytest.mark.parametrize("path", BODIES)
def test_a_url_that_may_not_be_called_is_refused_at_once(alice, signing, path):
    answer = alice.post(path, {**BODIES[path], "webhook_url": PRIVATE})
    assert (answer.status_code, answer.json["error"]["code"]) == (400, "webhook_url_refused")
    assert answer.json["error"]["param"] == "webhook_url"
    assert stored() == 0


@pytest.mark.parametrize("path", [path for path in BODIES if path != "/v1/jobs"])
def test_in_metadata_it_is_refused_by_its_place_there(alice, signing, path):
    answer = alice.post(path, {**BODIES[path], "metadata": {"webhook_url": PRIVATE}})
    assert (answer.status_code, answer.json["error"]["param"]) == (400, "metadata.webhook_url")


@pytest.mark.parametrize("body", [{"webhook_url": HOOK}, {"metadata": {"webhook_url": HOOK}}])
def test_a_response_takes_it_in_its_body_or_in_metadata(alice, signing, body):
    assert alice.post("/v1/responses", {**BODIES["/v1/responses"], **body}).status_code == 200
    assert told_at() == [HOOK]


def test_metadata_of_a_job_is_only_metadata(alice, signing):
    assert alice.submit(metadata={"webhook_url": HOOK}).status_code == 202
    assert told_at() == [None]


def test_a_repetition_is_answered_whatever_has_become_of_the_secret(alice, signing):
    key = {"Idempotency-Key": "k"}
    first = alice.submit(webhook_url=HOOK, headers=key)
    with transaction() as session:
        session.execute(delete(Secret))
    again = alice.submit(webhook_url=HOOK, headers=key)
    assert (again.status_code, again.json["id"]) == (200, first.json["id"])


def test_another_url_is_another_body(alice, signing):
    key = {"Idempotency-Key": "k"}
    alice.submit(webhook_url=HOOK, headers=key)
    for other in ({"webhook_url": f"{HOOK}2"}, {}):
        answer = alice.submit(headers=key, **other)
        assert (answer.status_code, answer.json["error"]["code"]) == (409, "idempotency_conflict")
