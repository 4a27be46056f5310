"""A batch's lines: listed, cancelled one by one, and read as files while it runs and after."""

import orjson
import pytest

from app.api.batches import lines as batch_lines
from tests.integration.api.batching import chat_line


@pytest.fixture
def batch(batches):
    """Lines 1 and 4 are jobs, 2 and 3 cannot be."""
    return batches.validated(chat_line("a"), b"no", chat_line("c", n=2), chat_line("d"), on_invalid="skip")


def lines_of(alice, batch, **query):
    return alice.get(batch["urls"]["lines"], query_string=query).json


def read(alice, path):
    answer = alice.get(path)
    assert (answer.status_code, answer.mimetype) == (200, "application/jsonl")
    return [orjson.loads(line) for line in answer.data.splitlines()]


def test_every_line_is_listed_whether_it_became_a_job_or_not(batch, alice):
    page = lines_of(alice, batch)
    assert [(line["line"], line["custom_id"], line["status"]) for line in page["data"]] == [
        (1, "a", "queued"),
        (2, None, "invalid"),
        (3, "c", "invalid"),
        (4, "d", "queued"),
    ]
    assert (page["has_more"], page["next_after"]) == (False, 4)
    job = alice.get(f"/v1/jobs/{page['data'][0]['job_id']}").json
    assert (job["status"], job["tier"]) == ("queued", "batch")
    assert page["data"][2]["error"]["code"] == "unsupported_parameter"


def test_lines_go_from_page_to_page_and_by_status(batch, batches, alice):
    first = lines_of(alice, batch, limit=3)
    assert ([line["line"] for line in first["data"]], first["has_more"]) == ([1, 2, 3], True)
    rest = lines_of(alice, batch, limit=3, after=first["next_after"])
    assert ([line["line"] for line in rest["data"]], rest["has_more"]) == ([4], False)
    batches.answer(batch["id"], 4)
    for status, expected in (("invalid", [2, 3]), ("queued", [1]), ("completed", [4]), ("failed", [])):
        assert [line["line"] for line in lines_of(alice, batch, status=status)["data"]] == expected, status
    assert alice.get(batch["urls"]["lines"], query_string={"status": "done"}).status_code == 400


def test_one_line_is_cancelled_and_the_others_go_on(batch, batches, alice):
    path = f"{batch['urls']['lines']}/1/cancel"
    cancelled = alice.post(path)
    assert (cancelled.status_code, cancelled.json["status"]) == (200, "cancelled")
    assert alice.post(path).json == cancelled.json
    batches.answer(batch["id"], 4)
    assert batches.run(batch["id"])["request_counts"] == {"total": 4, "completed": 1, "failed": 3}
    (first, *_) = read(alice, batch["urls"]["errors"])
    assert (first["custom_id"], first["error"]["code"]) == ("a", "job_cancelled")


def test_a_line_that_cannot_run_stays_as_it_is_when_cancelled(batch, alice):
    assert alice.post(f"{batch['urls']['lines']}/2/cancel").json["status"] == "invalid"


@pytest.mark.parametrize("line", ["0", "5", "-1", "x", "99999999999999999999", "1e3", "\u0663"])
def test_a_line_that_is_not_there_is_not_found(batch, alice, line):
    answer = alice.post(f"{batch['urls']['lines']}/{line}/cancel")
    assert (answer.status_code, answer.json["error"]["code"]) == (404, "line_not_found")


def test_output_and_errors_are_read_while_a_batch_runs(batch, batches, alice):
    assert alice.get(batch["urls"]["output"]).data == b""
    batches.answer(batch["id"], 4, "Fourth.")
    (said,) = read(alice, batch["urls"]["output"])
    assert (said["custom_id"], said["response"]["status_code"], said["error"]) == ("d", 200, None)
    assert said["response"]["body"]["choices"][0]["message"]["content"] == "Fourth."
    assert [error["line"] for error in read(alice, batch["urls"]["errors"])] == [2, 3]
    assert batches.show(batch["id"])["output_file_id"] is None


def test_errors_of_a_batch_that_failed_are_all_there(batches, alice):
    batch = batches.validated(*[b"no"] * 30)
    assert batch["status"] == "failed"
    assert [error["line"] for error in read(alice, batch["urls"]["errors"])] == [*range(1, 31)]


def test_files_are_read_after_their_lines_went_and_lines_after_the_files(batch, batches, alice):
    for line in (1, 4):
        batches.answer(batch["id"], line)
    batch = batches.run(batch["id"])
    written = alice.get(batch["urls"]["output"]).data
    assert written.count(b"\n") == 2
    alice("DELETE", f"/v1/jobs/{lines_of(alice, batch)['data'][0]['job_id']}")
    assert alice.get(batch["urls"]["output"]).data == written
    alice("DELETE", f"/v1/files/{batch['output_file_id']}")
    assert alice.get(batch["urls"]["output"]).data == written.splitlines(keepends=True)[1]


def test_a_file_comes_in_pieces_whatever_its_size(batches, alice, monkeypatch):
    monkeypatch.setattr(batch_lines, "CHUNK_BYTES", 100)
    batch = batches.validated(*[b"no"] * 5)
    answer = alice.get(batch["urls"]["errors"], buffered=False)
    pieces = [piece for piece in answer.response if piece]
    assert len(pieces) == 5
    assert b"".join(pieces).count(b"\n") == 5
