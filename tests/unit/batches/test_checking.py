"""Lines into jobs to be, or into what is wrong with them."""

from typing import Any

import orjson
import pytest

from app.accounts.limits import Caller
from app.batches.checking import Checked, Checker, Fault
from app.batches.reading import Line
from app.ids import new_id
from app.webhooks.errors import SecretMissing
from config.queues import Tier, Window

CHAT = "/v1/chat/completions"
BODY = {"model": "simulated", "messages": [{"role": "user", "content": "Say something."}], "max_tokens": 8}


def make_checker(**given: Any) -> Checker:
    caller = Caller(new_id("acct"), new_id("key"))
    return Checker(**{"endpoint": CHAT, "window": Window.ONE_DAY, "caller": caller, **given})


def line(**given: Any) -> dict[str, Any]:
    """What is None is left out."""
    said = {"custom_id": "one", "method": "POST", "url": CHAT, "body": BODY, **given}
    return {name: value for name, value in said.items() if value is not None}


def check(said: Any, checker: Checker | None = None, number: int = 1) -> Checked | Fault:
    raw = said if isinstance(said, bytes) else orjson.dumps(said)
    return (checker or make_checker()).check(Line(number, raw))


def fault(said: Any, **given: Any) -> Fault:
    found = check(said, **given)
    assert isinstance(found, Fault)
    return found


def test_a_line_becomes_a_batch_job_within_the_window_of_its_batch():
    found = check(line(), make_checker(window=Window.EIGHT_HOURS), number=7)
    assert isinstance(found, Checked)
    assert (found.line, found.custom_id) == (7, "one")
    draft = found.draft
    assert (draft.tier, draft.completion_window) == (Tier.BATCH, Window.EIGHT_HOURS)
    assert (draft.request["tier"], draft.request["completion_window"]) == ("batch", "8h")
    assert draft.reserved_tokens == draft.prompt_tokens + 8


@pytest.mark.parametrize(
    ("said", "code", "param"),
    [
        (line(custom_id=None), "missing_required_parameter", "custom_id"),
        (line(custom_id=""), "invalid_custom_id", "custom_id"),
        (line(custom_id=7), "invalid_custom_id", "custom_id"),
        (line(custom_id="x" * 513), "invalid_custom_id", "custom_id"),
        (line(method=None), "missing_required_parameter", "method"),
        (line(method="post"), "invalid_method", "method"),
        (line(url=None), "missing_required_parameter", "url"),
        (line(url="/v1/responses"), "invalid_url", "url"),
        (line(body=None), "missing_required_parameter", "body"),
        (line(body=[]), "invalid_value", "body"),
        (line(id="x"), "unknown_parameter", "id"),
        (line(body={**BODY, "model": "nope"}), "model_not_found", "body.model"),
        (line(body={**BODY, "max_tokens": 40_000}), "invalid_value", "body.max_completion_tokens"),
        (
            line(body={**BODY, "messages": [{"role": "user", "content": 7}]}),
            "invalid_value",
            "body.messages.0.content",
        ),
    ],
)
def test_a_fault_names_what_is_wrong(said, code, param):
    found = fault(said)
    assert (found.line, found.code, found.param) == (1, code, param)
    assert found.message


def test_what_a_line_cannot_ask_for_is_refused_by_name():
    for name, value in (("stream", True), ("n", 2), ("tier", "interactive"), ("completion_window", "1h")):
        assert fault(line(body={**BODY, name: value})).param == f"body.{name}"


def test_what_is_no_json_says_where():
    found = fault(b'{"custom_id": "one", "method": POST}')
    assert (found.code, found.column, found.custom_id) == ("invalid_json_line", 32, None)
    assert found.message.startswith("The line is not valid JSON")


def test_a_column_counts_characters():
    assert fault('{"custom_id": "ééé", ?}'.encode()).column == 22


@pytest.mark.parametrize("raw", [b"[]", b"7", b'"text"', b"null"])
def test_a_line_is_an_object(raw):
    assert fault(raw).code == "invalid_json_line"


def test_a_fault_says_whose_line_it_is_where_that_can_be_read():
    assert fault(line(method="GET")).custom_id == "one"
    assert fault(line(body={})).custom_id == "one"


def test_a_custom_id_that_was_used_names_the_line_that_has_it():
    checker = make_checker()
    assert isinstance(check(line(), checker, number=3), Checked)
    found = fault(line(), checker=checker, number=9)
    assert (found.line, found.code, found.custom_id) == (9, "duplicate_custom_id", "one")
    assert found.message == "Line 3 has the same custom_id: 'one'."


def test_a_custom_id_belongs_to_a_line_that_cannot_run_too():
    checker = make_checker()
    fault(line(method="GET"), checker=checker, number=1)
    assert fault(line(), checker=checker, number=2).code == "duplicate_custom_id"


def test_a_line_that_is_too_long_is_a_fault():
    found = make_checker().check(Line(4, b"", is_too_long=True))
    assert isinstance(found, Fault)
    assert (found.line, found.code) == (4, "line_too_long")


def test_a_name_given_twice_is_a_fault():
    assert "given twice" in fault(b'{"custom_id": "a", "custom_id": "b"}').message


def test_a_webhook_needs_a_secret_to_sign_with():
    said = line(body={**BODY, "webhook_url": "https://example.com/hook"})
    found = fault(said, checker=make_checker(callbacks_refused=SecretMissing()))
    assert (found.code, found.param) == ("webhook_secret_missing", "body.webhook_url")


def test_a_webhook_goes_to_no_private_address():
    said = line(body={**BODY, "webhook_url": "https://127.0.0.1/hook"})
    assert (fault(said).code, fault(said).param) == ("webhook_url_refused", "body.webhook_url")


def test_lines_name_few_hosts():
    checker = make_checker()

    def said(host: int) -> dict[str, Any]:
        url = f"https://10.0.0.{host}/hook"
        return line(custom_id=str(host), body={**BODY, "webhook_url": url})

    codes = [fault(said(host), checker=checker).code for host in range(21)]
    assert codes == ["webhook_url_refused"] * 20 + ["invalid_value"]


def test_what_a_client_says_is_shown_cut():
    assert len(fault(line(url="x" * 10_000)).message) < 300
