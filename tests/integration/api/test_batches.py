"""`/v1/batches`: create, show, list, cancel, retry."""

import pytest

from app.api.batches import views as batch_views
from app.batches import intake
from config.settings import settings
from tests.integration.api.batching import Batches, chat_line
from tests.openai_contract import BATCH, faults

BATCHES = "/v1/batches"


def error_of(answer):
    return answer.status_code, answer.json["error"]["code"], answer.json["error"]["param"]


def test_a_new_batch_is_openais_object(batches):
    answer = batches.create(chat_line("a"), metadata={"night": "1"})
    batch = answer.json
    assert answer.status_code == 200, batch
    assert answer.headers["Location"] == batch["urls"]["self"] == f"{BATCHES}/{batch['id']}"
    assert (batch["status"], batch["endpoint"], batch["metadata"]) == (
        "validating",
        "/v1/chat/completions",
        {"night": "1"},
    )
    assert batch["expires_at"] - batch["created_at"] == 86_400
    assert batch["request_counts"] == {"total": 0, "completed": 0, "failed": 0}
    assert batch["errors"] is batch["output_file_id"] is batch["error_file_id"] is None
    assert not faults(BATCH, batch)
    assert batches.show(batch["id"]) == batch


def test_every_url_of_a_batch_leads_somewhere(batches, alice):
    batch = batches.validated(chat_line("a"))
    for name, path in batch["urls"].items():
        if name == "stream":
            continue
        method = "POST" if name in {"cancel", "retry"} else "GET"
        assert alice(method, path).status_code in {200, 409}, name


def test_a_batch_goes_from_its_lines_to_its_files(batches, alice):
    batch = batches.validated(chat_line("a"), chat_line("b"))
    assert (batch["status"], batch["model"], batch["running"]) == ("in_progress", "faulty", 0)
    assert batch["request_counts"] == {"total": 2, "completed": 0, "failed": 0}
    assert batch["estimate"]["lines"] == 2
    assert batch["estimate"]["max_output_tokens"] == 32
    worker = batches.work(batch["id"], 2)
    assert batches.show(batch["id"])["running"] == 1
    worker.say("Two.")
    worker.complete()
    batches.answer(batch["id"], 1, "One.")
    counted = batches.show(batch["id"])
    assert counted["request_counts"] == {"total": 2, "completed": 2, "failed": 0}
    ended = batches.run(batch["id"])
    assert ended["status"] == "completed"
    assert ended["completed_at"] >= ended["finalizing_at"] >= ended["in_progress_at"]
    assert {name for name in ended if name.endswith("_at") and ended[name] is None} == {
        *("failed_at", "expired_at", "cancelling_at", "cancelled_at")
    }
    assert ended["usage"] == {**counted["usage"], "total_tokens": ended["usage"]["total_tokens"]}
    assert ended["usage"]["output_tokens"] == len("One.Two.")
    assert (ended["error_file_id"], ended["cost"]) == (None, None)
    assert not faults(BATCH, ended)
    content = alice.get(f"/v1/files/{ended['output_file_id']}/content").data
    assert content == alice.get(ended["urls"]["output"]).data


def test_every_bad_line_is_told_with_its_number_column_and_reason(batches):
    batch = batches.validated(
        chat_line("a"),
        chat_line("b", temperature=9),
        b'{"custom_id": "c", ',
        chat_line("a"),
    )
    assert batch["status"] == "failed"
    assert batch["errors"]["total"] == 3
    bad, broken, twice = batch["errors"]["data"]
    assert (bad["line"], bad["custom_id"], bad["param"]) == (2, "b", "body.temperature")
    assert (broken["line"], broken["column"]) == (3, 20)
    assert (twice["line"], twice["code"]) == (4, "duplicate_custom_id")
    assert "Line 1" in twice["message"]
    assert batch["request_counts"] == {"total": 4, "completed": 0, "failed": 3}
    assert not faults(BATCH, batch)


def test_what_is_wrong_with_the_whole_file_has_no_line(batches):
    batch = batches.validated(b"", b"")
    (fault,) = batch["errors"]["data"]
    assert (fault["code"], fault["line"]) == ("empty_file", None)
    assert not faults(BATCH, batch)


def test_a_batch_shows_the_first_faults_and_a_list_fewer(batches, alice, monkeypatch):
    monkeypatch.setattr(batch_views, "FAULTS_SHOWN", 3)
    monkeypatch.setattr(batch_views, "FAULTS_SHOWN_IN_LISTS", 2)
    batch = batches.validated(*[b"no"] * 5)
    assert [fault["line"] for fault in batch["errors"]["data"]] == [1, 2, 3]
    (listed,) = alice.get(BATCHES).json["data"]
    assert [fault["line"] for fault in listed["errors"]["data"]] == [1, 2]
    assert batch["errors"]["total"] == listed["errors"]["total"] == 5


def test_a_dry_run_only_says_what_it_would_cost(batches):
    batch = batches.validated(chat_line("a"), b"no", dry_run=True, on_invalid="skip")
    assert (batch["status"], batch["dry_run"]) == ("completed", True)
    assert (batch["estimate"]["lines"], batch["estimate"]["invalid"]) == (2, 1)
    assert batch["errors"]["total"] == 1
    assert batch["output_file_id"] is None


def test_the_same_key_and_body_attach_and_another_body_is_a_conflict(batches):
    key = {"Idempotency-Key": "night"}
    file_id = batches.upload(chat_line("a"))
    first = batches.create(input_file_id=file_id, headers=key)
    again = batches.create(input_file_id=file_id, headers=key)
    assert (again.json, again.headers["Idempotency-Replayed"]) == (first.json, "true")
    other = batches.create(input_file_id=file_id, metadata={"a": "b"}, headers=key)
    assert error_of(other) == (409, "idempotency_conflict", "Idempotency-Key")


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"input_file_id": "file_nothing"}, 404, "input_file_not_found", "input_file_id"),
        ({"endpoint": "/v1/moderations"}, 400, "invalid_value", "endpoint"),
        ({"completion_window": "3d"}, 400, "invalid_value", "completion_window"),
        (
            {"output_expires_after": {"anchor": "created_at", "seconds": 5}},
            *(400, "invalid_value", "output_expires_after.seconds"),
        ),
        ({"webhook_url": "http://127.0.0.1/"}, 400, "webhook_url_refused", "webhook_url"),
        (
            {"metadata": {"webhook_url": "http://127.0.0.1/"}},
            *(400, "webhook_url_refused", "metadata.webhook_url"),
        ),
        ({"priority": 1}, 400, "invalid_value", "priority"),
    ],
)
def test_what_no_batch_can_be_is_refused_by_name(batches, body, status, code, param):
    assert error_of(batches.create(chat_line("a"), **body)) == (status, code, param)


def test_a_file_that_is_not_the_callers_or_not_for_batches_is_refused(batches, mallory):
    theirs = Batches(mallory).upload(chat_line("a"))
    assert error_of(batches.create(input_file_id=theirs))[:2] == (404, "input_file_not_found")
    other = batches.upload(chat_line("a"), purpose="user_data")
    assert error_of(batches.create(input_file_id=other))[:2] == (400, "invalid_input_file")


def test_a_webhook_url_needs_a_secret_to_sign_with(batches, alice):
    url = "https://93.184.215.14/hook"
    answer = batches.create(chat_line("a"), webhook_url=url)
    assert error_of(answer) == (400, "webhook_secret_missing", "webhook_url")
    alice.post("/v1/webhooks/secret/rotate")
    for body in ({"webhook_url": url}, {"metadata": {"webhook_url": url}}):
        assert batches.create(chat_line("a"), **body).json["webhook_url"] == url


def test_why_a_batch_failed_comes_before_what_is_wrong_with_its_lines(batches, monkeypatch):
    few = settings().model_copy(update={"max_batch_lines": 2})
    monkeypatch.setattr(intake, "settings", lambda: few)
    batch = batches.validated(b"no", chat_line("b"), chat_line("c"))
    assert [(fault["code"], fault["line"]) for fault in batch["errors"]["data"]] == [
        ("too_many_lines", None),
        ("invalid_json_line", 1),
    ]
    assert batch["errors"]["total"] == 2


def test_another_accounts_batch_is_not_found(batches, mallory):
    batch = batches.validated(chat_line("a"))
    for name, path in batch["urls"].items():
        method = "POST" if name in {"cancel", "retry"} else "GET"
        if name != "stream":
            assert error_of(mallory(method, path)) == (404, "batch_not_found", "batch_id"), name
    assert error_of(mallory.get(BATCHES, query_string={"after": batch["id"]}))[0] == 404
    assert mallory.get(BATCHES).json["data"] == []
    assert error_of(mallory("POST", f"{batch['urls']['lines']}/1/cancel"))[1] == "batch_not_found"


def test_a_list_goes_from_page_to_page_newest_first(batches, alice):
    made = [batches.create(chat_line("a")).json["id"] for _ in range(3)]
    first = alice.get(BATCHES, query_string={"limit": 2}).json
    assert [batch["id"] for batch in first["data"]] == made[:0:-1]
    assert (first["has_more"], first["first_id"], first["last_id"]) == (True, made[2], made[1])
    rest = alice.get(BATCHES, query_string={"limit": 2, "after": first["last_id"]}).json
    assert [batch["id"] for batch in rest["data"]] == made[:1]
    assert rest["has_more"] is False


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 101}, {"order": "asc"}])
def test_a_list_has_its_limits(alice, query):
    assert alice.get(BATCHES, query_string=query).status_code == 400


def test_a_batch_is_cancelled_and_cancelling_again_changes_nothing(batches, alice):
    batch = batches.validated(chat_line("a"), chat_line("b"))
    batches.answer(batch["id"], 1)
    cancelling = alice.post(batch["urls"]["cancel"])
    assert (cancelling.status_code, cancelling.json["status"]) == (200, "cancelling")
    assert alice.post(batch["urls"]["cancel"]).json["cancelling_at"] == cancelling.json["cancelling_at"]
    ended = batches.run(batch["id"])
    assert (ended["status"], ended["cancelled_at"] is not None) == ("cancelled", True)
    assert ended["request_counts"] == {"total": 2, "completed": 1, "failed": 1}
    assert alice.post(batch["urls"]["cancel"]).json == ended
    assert not faults(BATCH, ended)


def test_a_batch_that_is_still_checked_is_cancelled_at_once(batches, alice):
    batch = batches.create(chat_line("a")).json
    assert alice.post(batch["urls"]["cancel"]).json["status"] == "cancelled"
    batches.validate(batch["id"])
    assert batches.show(batch["id"])["status"] == "cancelled"


def test_failed_lines_are_run_again_as_a_new_batch(batches, alice):
    batch = batches.validated(chat_line("a"), chat_line("b"))
    assert error_of(alice.post(batch["urls"]["retry"])) == (409, "batch_active", None)
    batches.answer(batch["id"], 1)
    alice.post(f"{batch['urls']['lines']}/2/cancel")
    assert batches.run(batch["id"])["status"] == "completed"
    again = alice.post(batch["urls"]["retry"], headers={"Idempotency-Key": "again"})
    assert again.status_code == 200, again.json
    assert (again.json["retry_of"], again.json["status"]) == (batch["id"], "in_progress")
    assert again.json["request_counts"]["total"] == 1
    assert alice.post(batch["urls"]["retry"], headers={"Idempotency-Key": "again"}).json == again.json
    (line,) = alice.get(again.json["urls"]["lines"]).json["data"]
    assert line["custom_id"] == "b"
    assert not faults(BATCH, again.json)


def test_a_batch_without_failed_lines_has_nothing_to_retry(batches, alice):
    batch = batches.validated(chat_line("a"))
    batches.answer(batch["id"], 1)
    batches.run(batch["id"])
    assert error_of(alice.post(batch["urls"]["retry"])) == (400, "nothing_to_retry", None)
