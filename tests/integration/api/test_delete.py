"""`DELETE /v1/jobs/{id}`."""

from datetime import timedelta

from sqlalchemy import text

from app.db import transaction
from app.jobs import rescue
from tests.integration.api.batching import chat_line

RESPONSES = "/v1/responses"


def test_a_finished_job_is_gone_with_its_log(alice, work):
    job = alice.submit().json
    worker = work(job["id"])
    worker.say("secret")
    worker.complete()
    answer = alice("DELETE", job["urls"]["self"])
    assert answer.status_code == 200
    assert answer.json == {"id": job["id"], "object": "job.deleted", "deleted": True}
    assert alice.get(job["urls"]["self"]).status_code == 404
    assert alice.get(job["urls"]["events"]).status_code == 404
    with transaction() as session:
        counts = "SELECT (SELECT count(*) FROM job_events) + (SELECT count(*) FROM job_segments)"
        assert session.scalar(text(counts)) == 0


def test_an_active_job_is_refused_with_a_conflict_that_is_not_to_be_retried(alice, work):
    job = alice.submit().json
    for _ in range(2):
        answer = alice("DELETE", job["urls"]["self"])
        assert answer.status_code == 409
        assert answer.headers["x-should-retry"] == "false"
        assert answer.json["error"]["code"] == "job_active"
        if alice.get(job["urls"]["self"]).json["status"] == "queued":
            work(job["id"])


def test_deleting_twice_is_not_found(alice):
    job = alice.submit().json
    alice.post(job["urls"]["cancel"])
    assert alice("DELETE", job["urls"]["self"]).status_code == 200
    assert alice("DELETE", job["urls"]["self"]).status_code == 404


def test_the_idempotency_key_of_a_deleted_job_is_free_again(alice):
    job = alice.submit(headers={"Idempotency-Key": "k"}).json
    alice.post(job["urls"]["cancel"])
    alice("DELETE", job["urls"]["self"])
    again = alice.submit(headers={"Idempotency-Key": "k"})
    assert again.status_code == 202
    assert again.json["id"] != job["id"]


def test_a_line_is_kept_until_its_batch_has_ended(alice, batches):
    batch = batches.validated(chat_line("a"), chat_line("b"))
    batches.answer(batch["id"], 1)
    (line,) = alice.get(f"/v1/jobs?batch_id={batch['id']}&status=completed").json["data"]
    answer = alice("DELETE", line["urls"]["self"])
    assert (answer.status_code, answer.json["error"]["code"]) == (409, "job_in_batch")
    assert batch["id"] in answer.json["error"]["message"]
    batches.answer(batch["id"], 2)
    while batches.run(batch["id"])["status"] != "completed":
        pass
    assert alice("DELETE", line["urls"]["self"]).status_code == 200


def test_retention_spares_the_lines_of_a_running_batch(alice, batches):
    batch = batches.validated(chat_line("a"), chat_line("b", store=False), chat_line("c"))
    for line in (1, 2):
        batches.answer(batch["id"], line)

    def aged():
        with transaction() as session:
            session.execute(text("UPDATE jobs SET finished_at = now() - interval '8 d' WHERE line < 3"))
            old = rescue.delete_finished(session, timedelta(days=7), 10)
            return rescue.delete_unstored(session, timedelta(days=7), 10), old

    assert aged() == (0, 0)
    batches.answer(batch["id"], 3)
    while batches.run(batch["id"])["status"] != "completed":
        pass
    assert aged() == (0, 2)


def test_deleting_a_response_of_a_running_batch_does_not_cancel_it(alice, batches):
    line = {"custom_id": "a", "method": "POST", "url": RESPONSES, "body": {"model": "faulty", "input": "Hi"}}
    batch = batches.validated(line, endpoint=RESPONSES)
    (job,) = alice.get(f"/v1/jobs?batch_id={batch['id']}").json["data"]
    answer = alice("DELETE", f"{RESPONSES}/{job['id'].replace('job_', 'resp_')}")
    assert (answer.status_code, answer.json["error"]["code"]) == (409, "job_in_batch")
    assert alice.get(job["urls"]["self"]).json["status"] == "queued"
