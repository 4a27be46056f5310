"""API keys over HTTP."""

import pytest

from app.accounts import keys
from app.api import auth
from app.db import transaction


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer lh-wrong",
        "Basic bGg6eA==",
        "lh-wrong",
        "Bearer caf\u00e9",
        "Bearer " + "x" * 5000,
    ],
)
def test_without_a_valid_key_there_is_nothing(caller, header):
    headers = {} if header is None else {"Authorization": header}
    for method, path in (
        ("POST", "/v1/jobs"),
        ("GET", "/v1/jobs"),
        ("GET", "/v1/models"),
        ("POST", "/v1/stream-tickets"),
    ):
        answer = caller(None)(method, path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert answer.json["error"]["type"] == "authentication_error"
        assert answer.json["error"]["code"] == "invalid_api_key"


def test_the_scheme_is_written_in_any_case(alice):
    assert alice.get("/v1/models", headers={"Authorization": f"bearer {alice.secret}"}).status_code == 200


def test_a_revoked_key_stops_working_when_the_cache_forgets_it(alice):
    assert alice.get("/v1/models").status_code == 200
    with transaction() as session:
        for key, _ in keys.list_keys(session):
            keys.revoke_key(session, key.id)
    auth._known.clear()
    assert alice.get("/v1/models").status_code == 401


def test_a_valid_key_costs_one_look_into_the_database(alice, monkeypatch):
    assert alice.get("/v1/models").status_code == 200

    def refuse():
        raise AssertionError("asked again")

    monkeypatch.setattr(auth, "transaction", refuse)
    assert alice.get("/v1/models").status_code == 200
