"""Real answers have the shapes that the OpenAPI document promises."""

import pytest
from jsonschema import Draft202012Validator

from app.api.openapi import document


@pytest.fixture
def agrees(app):
    """`agrees(answer, method, path)` checks an answer against the document."""
    spec = document(app)

    def check(answer, method, path):
        promised = spec["paths"][path][method]["responses"][str(answer.status_code)]
        schema = {**promised["content"]["application/json"]["schema"], "components": spec["components"]}
        errors = list(Draft202012Validator(schema).iter_errors(answer.json))
        assert not errors, errors
        return answer

    return check


def test_jobs_agree(alice, work, agrees):
    job = agrees(alice.submit(logprobs=1), "post", "/v1/jobs").json
    path = "/v1/jobs/{job_id}"
    agrees(alice.get(job["urls"]["self"]), "get", path)
    worker = work(job["id"])
    worker.say("text")
    worker.store()
    agrees(alice.get(job["urls"]["self"]), "get", path)
    worker.complete()
    assert agrees(alice.get(job["urls"]["self"]), "get", path).json["status"] == "completed"
    agrees(alice.get(job["urls"]["events"]), "get", f"{path}/events")
    agrees(alice.get("/v1/jobs"), "get", "/v1/jobs")
    agrees(alice.post(job["urls"]["cancel"]), "post", f"{path}/cancel")
    agrees(alice.post("/v1/stream-tickets", {"job_id": job["id"]}), "post", "/v1/stream-tickets")
    agrees(alice("DELETE", job["urls"]["self"]), "delete", path)


def test_models_and_health_agree(alice, agrees):
    agrees(alice.get("/v1/models"), "get", "/v1/models")
    agrees(alice.get("/v1/models/faulty"), "get", "/v1/models/{name}")
    agrees(alice.get("/livez"), "get", "/livez")
    agrees(alice.get("/readyz"), "get", "/readyz")


def test_errors_agree(alice, caller, agrees):
    job = alice.submit(headers={"Idempotency-Key": "k"}).json
    agrees(caller(None).get("/v1/jobs"), "get", "/v1/jobs")
    agrees(alice.get("/v1/jobs/x"), "get", "/v1/jobs/{job_id}")
    agrees(alice.submit(model="x"), "post", "/v1/jobs")
    agrees(alice.submit(input=""), "post", "/v1/jobs")
    agrees(alice.submit(headers={"Idempotency-Key": "k"}, input="other"), "post", "/v1/jobs")
    agrees(alice("DELETE", job["urls"]["self"]), "delete", "/v1/jobs/{job_id}")
