"""Endpoints and secrets: what an account listens to, what disabling does, rotation."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import orjson
import pytest
from sqlalchemy import func, select, update

from app.accounts.tables import Account
from app.db import transaction
from app.webhooks import catalogue, endpoints, secrets
from app.webhooks.errors import EndpointNotFound, EventTypeUnknown, SecretMissing, TooManyEndpoints
from app.webhooks.redelivering import send_test
from app.webhooks.tables import DeliveryState, Endpoint, Origin, Scheme, Secret
from config.settings import settings
from tests.integration.webhooks.conftest import URL, end, fan, told


def listens_to(account_id):
    with transaction() as session:
        return set(session.scalar(select(Account.listens_to).where(Account.id == account_id)))


def disable(endpoint, reason="It answered 410."):
    with transaction() as session:
        endpoints.lock(session, endpoint.id)
        return endpoints.disable(session, endpoint, reason)


def test_an_account_listens_to_what_its_endpoints_want_together(make_endpoint):
    first = make_endpoint("job.completed")
    account_id = first.account_id
    second = make_endpoint("response.failed", "batch.progress")
    assert listens_to(account_id) == {"job.completed", "job.failed", "job.expired", "batch.progress"}
    with transaction() as session:
        endpoints.change(session, account_id, second.id, {"events": ["batch.*"]})
    assert listens_to(account_id) == {"job.completed", *catalogue.BATCH_TYPES}
    with transaction() as session:
        endpoints.drop(session, account_id, second.id)
    assert listens_to(account_id) == {"job.completed"}


def test_a_disabled_endpoint_still_collects_what_it_would_have_been_told(make_endpoint):
    endpoint = make_endpoint("job.completed")
    disable(endpoint)
    assert listens_to(endpoint.account_id) == {"job.completed"}


def test_endpoints_made_at_once_are_all_listened_to(make_account, make_endpoint):
    make_account()
    wanted = ["job.completed", "job.failed", "job.cancelled", "job.expired"]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(make_endpoint, wanted))
    assert listens_to(made[0].account_id) == set(wanted)


def test_an_account_has_no_more_endpoints_than_it_may(make_endpoint, monkeypatch):
    monkeypatch.setattr(
        endpoints, "settings", lambda: settings().model_copy(update={"max_webhook_endpoints": 2})
    )
    make_endpoint()
    make_endpoint()
    with pytest.raises(TooManyEndpoints, match="2"):
        make_endpoint()
    make_endpoint(account="mallory")


def test_an_unknown_type_makes_no_endpoint(make_endpoint):
    with pytest.raises(EventTypeUnknown):
        make_endpoint("job.done")
    with transaction() as session:
        assert session.scalar(select(func.count()).select_from(Endpoint)) == 0


def test_another_accounts_endpoint_is_not_found(make_endpoint, make_account):
    endpoint, mallory = make_endpoint(), make_account("mallory")
    for verb in (endpoints.get_endpoint, endpoints.drop, lambda *a: endpoints.change(*a, {"url": URL})):
        with pytest.raises(EndpointNotFound), transaction() as session:
            verb(session, mallory.id, endpoint.id)


def test_disabling_discards_what_waits_and_tells_the_others(make_endpoint, make_told):
    endpoint, other, _ = make_endpoint(), make_endpoint(), make_endpoint("job.*")
    end(make_told())
    fan()
    assert disable(endpoint)
    waiting = {d.state for d, m in told() if d.endpoint_id == endpoint.id}
    assert waiting == {DeliveryState.DISCARDED}
    [(delivery, message)] = [(d, m) for d, m in told() if m.type == "webhook_endpoint.disabled"]
    assert (delivery.endpoint_id, delivery.state) == (other.id, DeliveryState.PENDING)
    data = orjson.loads(message.body)["data"]
    assert (data["id"], data["status"], data["error"]["message"]) == (
        endpoint.id,
        "disabled",
        "It answered 410.",
    )


def test_of_two_who_disable_one_does(make_endpoint):
    endpoint = make_endpoint()
    make_endpoint()
    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(disable, [endpoint, endpoint])) == [False, True]
    assert len(told()) == 1


def test_an_enabled_endpoint_begins_anew(make_endpoint):
    endpoint = make_endpoint()
    with transaction() as session:
        failing = {"failures": 9, "failing_since": func.now(), "retry_at": func.now()}
        session.execute(update(Endpoint).values(**failing))
    disable(endpoint)
    with transaction() as session:
        endpoints.enable(session, endpoints.get_endpoint(session, endpoint.account_id, endpoint.id))
    with transaction() as session:
        found = session.get(Endpoint, endpoint.id)
        assert (found.disabled_at, found.disabled_reason, found.failing_since) == (None, None, None)
        assert (found.retry_at, found.failures) == (None, 0)


def test_a_dropped_endpoint_takes_its_secrets_and_deliveries_along(make_endpoint, make_told):
    endpoint = make_endpoint()
    end(make_told())
    fan()
    with transaction() as session:
        endpoints.drop(session, endpoint.account_id, endpoint.id)
    assert told() == []
    with transaction() as session:
        assert session.scalar(select(func.count()).select_from(Secret)) == 0


def test_a_rotated_secret_signs_beside_its_successor_until_it_expires(make_endpoint):
    endpoint = make_endpoint()
    account_id = endpoint.account_id

    def rotate(seconds):
        with transaction() as session:
            return secrets.rotate(session, account_id, endpoint.id, None, seconds).secret

    def signing():
        with transaction() as session:
            return secrets.signing_secrets(session, endpoint)

    [first] = signing()
    second = rotate(3600)
    assert signing() == [second, first]
    # A later rotation gives nothing a longer life.
    third = rotate(86_400)
    assert signing() == [third, second, first]
    with transaction() as session:
        ends = dict(session.execute(select(Secret.secret, Secret.expires_at)).all())
        assert ends[third] is None
        assert ends[first] < ends[second]
        hour_ago = func.now() - timedelta(hours=1)
        session.execute(update(Secret).where(Secret.secret == first).values(expires_at=hour_ago))
    assert signing() == [third, second]
    assert rotate(0) == signing()[0]
    assert len(signing()) == 1


def test_secrets_rotated_at_once_leave_one_without_an_end(make_endpoint):
    endpoint = make_endpoint()

    def rotate(_):
        with transaction() as session:
            return secrets.rotate(session, endpoint.account_id, endpoint.id, None, 60)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(rotate, range(4)))
    with transaction() as session:
        lasting = select(func.count()).select_from(Secret).where(Secret.expires_at.is_(None))
        assert session.scalar(lasting) == 1


def test_a_rotation_keeps_the_scheme_unless_it_names_one(make_endpoint):
    endpoint = make_endpoint(scheme="v1a")
    schemes = []
    for named in (None, Scheme.HMAC, None):
        with transaction() as session:
            schemes.append(secrets.rotate(session, endpoint.account_id, endpoint.id, named, 0).scheme)
    assert schemes == ["v1a", "v1", "v1"]


def test_the_accounts_secret_signs_for_webhook_urls_and_no_other(make_account, make_endpoint):
    registered = make_endpoint()
    account_id = registered.account_id
    with pytest.raises(SecretMissing, match="/v1/webhooks/secret/rotate"), transaction() as session:
        secrets.require_account_secret(session, account_id)
    mallory = make_account("mallory")
    with transaction() as session:
        secrets.rotate(session, mallory.id, None, None, 0)
        own = secrets.rotate(session, account_id, None, None, 0).secret
        secrets.require_account_secret(session, account_id)
        requested = Endpoint(account_id=account_id, origin=Origin.REQUEST, id=registered.id)
        assert secrets.signing_secrets(session, requested) == [own]
        assert own not in secrets.signing_secrets(session, registered)


def test_a_test_event_goes_to_its_endpoint_alone(make_endpoint):
    endpoint = make_endpoint("job.failed")
    make_endpoint("*")
    with transaction() as session:
        send_test(session, endpoint)
    assert [(d.endpoint_id, m.type) for d, m in told()] == [(endpoint.id, "webhook.test")]
