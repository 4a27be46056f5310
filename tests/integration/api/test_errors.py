"""Every answer that is an error has OpenAI's envelope, and every answer an id."""

import pytest
from sqlalchemy.exc import OperationalError

from app.api import jobs


def test_an_unknown_address_is_404_in_the_envelope(alice):
    answer = alice.get("/v1/nothing")
    assert answer.status_code == 404
    assert answer.json == {
        "error": {
            "message": "Unknown request URL: GET /v1/nothing.",
            "type": "invalid_request_error",
            "code": "not_found",
            "param": None,
        }
    }


def test_a_wrong_method_is_405_and_says_which_are_right(alice):
    answer = alice("PUT", "/v1/jobs")
    assert answer.status_code == 405
    assert set(answer.headers["Allow"].split(", ")) >= {"GET", "POST"}
    assert answer.json["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/nothing", "/livez", "/docs", "/v1/jobs/x"])
def test_every_answer_has_the_id_that_the_client_gave(alice, path):
    assert alice.get(path, headers={"x-request-id": "my-1"}).headers["x-request-id"] == "my-1"


@pytest.mark.parametrize("given", ["", "with space", "x" * 129, "caf\u00e9"])
def test_an_id_that_is_not_sane_is_replaced(alice, given):
    found = alice.get("/v1/models", headers={"x-request-id": given}).headers["x-request-id"]
    assert found.startswith("req_")


def test_what_nobody_expected_is_a_bare_500_that_quotes_the_id(alice, monkeypatch):
    def crash(*_args, **_options):
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(jobs.queries, "list_jobs", crash)
    answer = alice.get("/v1/jobs", headers={"x-request-id": "quote-me"})
    assert answer.status_code == 500
    assert "quote-me" in answer.json["error"]["message"]
    assert "secret" not in answer.text
    assert (answer.json["error"]["type"], answer.json["error"]["code"]) == ("server_error", "internal_error")


def test_a_database_that_is_away_is_a_503_to_be_tried_again(alice, monkeypatch):
    def away(*_args, **_options):
        raise OperationalError("select", {}, Exception("connection refused: 10.0.0.1"))

    monkeypatch.setattr(jobs.queries, "list_jobs", away)
    answer = alice.get("/v1/jobs")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"]
    assert "10.0.0.1" not in answer.text


def test_a_trailing_slash_is_not_held_against_anybody(alice):
    assert alice.get("/v1/jobs/").status_code == 200
