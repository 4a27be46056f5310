"""`/livez` and `/readyz`."""

import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.api import draining, health


def test_a_live_and_ready_server_says_so_without_a_key(caller):
    anybody = caller(None)
    assert anybody.get("/livez").json["status"] == "ok"
    answer = anybody.get("/readyz")
    assert answer.status_code == 200
    assert answer.json == {"status": "ok", "checks": {"database": "ok", "redis": "ok", "server": "ok"}}


def test_a_server_without_redis_is_not_ready_and_says_why(caller, monkeypatch):
    monkeypatch.setattr(health, "client", lambda: redis.Redis(port=1, retry=Retry(NoBackoff(), 0)))
    answer = caller(None).get("/readyz")
    assert answer.status_code == 503
    assert answer.json["checks"] == {
        "database": "ok",
        "redis": "unreachable (ConnectionError)",
        "server": "ok",
    }


def test_a_database_that_hangs_does_not_hang_the_answer(caller, monkeypatch):
    monkeypatch.setattr(health, "_ask_database", lambda: time.sleep(3))
    started = time.monotonic()
    answer = caller(None).get("/readyz")
    assert time.monotonic() - started < 2.8
    assert (answer.status_code, answer.json["checks"]["database"]) == (503, "no answer within 2 s")


def test_a_server_that_stops_is_not_ready_but_lives(caller, monkeypatch):
    monkeypatch.setattr(draining, "_state", {"draining": True})
    answer = caller(None).get("/readyz")
    assert (answer.status_code, answer.json["checks"]["server"]) == (503, "stopping")
    assert caller(None).get("/livez").status_code == 200
