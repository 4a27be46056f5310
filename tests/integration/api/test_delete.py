"""`DELETE /v1/jobs/{id}`."""

from sqlalchemy import text

from app.db import transaction


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
