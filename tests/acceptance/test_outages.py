"""Postgres or Redis goes away in the middle of a generation and comes back. Each test has its own servers."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.stack import running
from tests.conftest import TEST_SETTINGS
from tests.eventually import eventually
from workers.embedded import Postgres, Valkey

PROGRAM = Path(sys.executable).parent / "longhaul"
STORY = {
    "model": "faulty",
    "max_output_tokens": 800,
    "input": "[[step_ms=15]] Tell me a story.",
    "temperature": 0,
}


class Servers:
    """Both servers, each of which a test may stop and start at the same address."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._stack = stack
        self._running: dict[str, ExitStack] = {}
        self.servers = {"postgres": Postgres(folder / "postgres"), "valkey": Valkey(folder / "valkey")}
        for name in self.servers:
            self.start(name)

    @property
    def environment(self) -> dict[str, str]:
        urls = {"DATABASE_URL": self.servers["postgres"].url, "REDIS_URL": self.servers["valkey"].url}
        return {**TEST_SETTINGS, **urls}

    def start(self, name: str) -> None:
        self._running[name] = ExitStack()
        self._running[name].enter_context(self.servers[name].running())
        self._stack.callback(self.stop, name)

    def stop(self, name: str) -> None:
        if name in self._running:
            self._running.pop(name).close()


@pytest.fixture
def outage(tmp_path):
    """(servers, stack) with web, dispatcher, background and one worker up."""
    with ExitStack() as resources:
        servers = Servers(tmp_path, resources)
        key = _key(servers.environment)
        logs = tmp_path / "logs"
        logs.mkdir()
        stack = resources.enter_context(running(servers.environment, key, logs))
        stack.start("background")
        stack.start("dispatcher")
        stack.start_web()
        stack.start("gpu")
        stack.wait_for_workers("faulty", 1)
        yield servers, stack


def _key(environment: dict[str, str]) -> str:
    import os

    def longhaul(*args: str) -> str:
        ran = subprocess.run(
            [PROGRAM, *args], env={**os.environ, **environment}, capture_output=True, text=True, check=True
        )
        return ran.stdout.strip()

    longhaul("db", "upgrade")
    return longhaul("keys", "create", "test")


def test_a_redis_that_restarts_or_forgets_everything_costs_no_token(outage):
    servers, stack = outage
    whole = stack.ended(stack.submit(**STORY))["output"]["text"]
    job_id = stack.submit(**STORY)
    following = stack.follow(job_id)
    eventually(lambda: len(following.seen.text) > 100)

    servers.stop("valkey")
    waiting = stack.submit(model="faulty", max_output_tokens=5)  # accepted all the same
    shown = len(following.seen.text)
    eventually(lambda: len(following.seen.text) > shown + 100, 20, stack.tail())  # out of Postgres
    servers.start("valkey")

    import redis

    redis.Redis.from_url(servers.environment["REDIS_URL"]).flushall()
    assert following.ended().text == whole
    assert following.seen.rewinds == []
    assert stack.ended(waiting)["usage"]["output_tokens"] == 5
    assert stack.job(job_id)["attempt"] == 1


def test_a_postgres_that_restarts_costs_no_token(outage):
    servers, stack = outage
    whole = stack.ended(stack.submit(**STORY))["output"]["text"]
    job_id = stack.submit(**STORY)
    following = stack.follow(job_id)
    eventually(lambda: len(following.seen.text) > 100)

    servers.stop("postgres")
    refused = stack.http.get(f"/v1/jobs/{job_id}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "database_unavailable")
    servers.start("postgres")

    assert following.ended().text == whole
    assert stack.ended(job_id)["output"]["text"] == whole
    assert stack.ended(stack.submit(model="faulty", max_output_tokens=5))["usage"]["output_tokens"] == 5


def test_a_line_under_load_outlives_redis(outage):
    """Batch work fills the engine and more waits; Redis goes, jobs still come, and it is back with nothing."""
    servers, stack = outage
    line = {"model": "faulty", "input": "[[step_ms=10]] A line.", "max_output_tokens": 60, "ignore_eos": True}
    chat = {"model": "faulty", "input": "[[tokens=10]] A chat."}
    jobs = [stack.submit(**line, tier="batch") for _ in range(24)]
    eventually(lambda: any(stack.job(job_id)["started_at"] for job_id in jobs), 20, stack.tail())
    servers.stop("valkey")
    jobs += [stack.submit(**line, tier="batch") for _ in range(8)]
    chats = [stack.submit(**chat) for _ in range(4)]
    servers.start("valkey")
    chats += [stack.submit(**chat) for _ in range(4)]
    for job_id in chats:
        assert stack.ended(job_id)["status"] == "completed"
    for job_id in jobs:
        job = stack.ended(job_id, 120)
        assert (job["status"], job["usage"]["output_tokens"]) == ("incomplete", 60)
        events = stack.http.get(f"/v1/jobs/{job_id}/events").json()["data"]
        assert [e["type"] for e in events if e["type"] == "job.incomplete"] == ["job.incomplete"]
