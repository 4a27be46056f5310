"""`/v1/models`."""

from sqlalchemy import text

from app.db import transaction


def add_worker(worker_id, slots, *, draining=False):
    with transaction() as session:
        session.execute(
            text("INSERT INTO workers (id, model, slots, draining) VALUES (:id, 'faulty', :slots, :draining)"),
            {"id": worker_id, "slots": slots, "draining": draining},
        )


def test_the_catalogue_is_listed_in_openais_shape_with_who_serves_it(alice):
    add_worker("one", 4)
    add_worker("two", 8)
    page = alice.get("/v1/models").json
    assert page["object"] == "list"
    models = {model["id"]: model for model in page["data"]}
    assert set(models) == {"smollm2", "simulated", "faulty"}
    assert models["faulty"] == {
        "id": "faulty",
        "object": "model",
        "created": 0,
        "owned_by": "longhaul",
        "description": "",
        "context_tokens": 4096,
        "tiers": ["interactive", "batch"],
        "workers": 2,
        "slots": 12,
    }
    assert models["smollm2"]["workers"] == 0


def test_one_model_is_shown(alice):
    assert alice.get("/v1/models/smollm2").json["id"] == "smollm2"


def test_a_worker_that_stops_does_not_count(alice):
    add_worker("one", 4)
    add_worker("two", 8, draining=True)
    model = alice.get("/v1/models/faulty").json
    assert (model["workers"], model["slots"]) == (1, 4)


def test_an_unknown_model_is_not_found_and_the_known_ones_are_named(alice):
    answer = alice.get("/v1/models/org/unknown")
    assert answer.status_code == 404
    assert answer.json["error"]["code"] == "model_not_found"
    assert "smollm2" in answer.json["error"]["message"]
