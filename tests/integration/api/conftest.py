"""Callers of the API, and servers that serve it: Flask's test client for plain requests, a threaded server in
this process for streams, and a gunicorn process, configured as in production, for what only that shows.
"""

import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from werkzeug.serving import make_server

from tests.conftest import ROOT, VAR_DIR
from tests.eventually import eventually
from tests.integration.api.batching import Batches
from tests.integration.streams.conftest import PlayedWorker


class Caller:
    """Requests with a key, or with none."""

    def __init__(self, app: Any, secret: str | None) -> None:
        self.secret = secret
        self._client = app.test_client()
        self.headers = {"Authorization": f"Bearer {secret}"} if secret else {}

    def __call__(self, method: str, path: str, *, headers: Any = None, **options: Any) -> Any:
        return self._client.open(path, method=method, headers={**self.headers, **(headers or {})}, **options)

    def get(self, path: str, **options: Any) -> Any:
        return self("GET", path, **options)

    def post(self, path: str, json: Any = None, **options: Any) -> Any:
        return self("POST", path, **({"json": json} if json is not None else {}), **options)

    def submit(self, **body: Any) -> Any:
        headers = body.pop("headers", None)
        return self.post("/v1/jobs", {"model": "faulty", "input": "Say something.", **body}, headers=headers)


@pytest.fixture(scope="session")
def app(services: dict[str, str]) -> Any:
    from app.api import create_app

    root = logging.getLogger()
    handlers = root.handlers
    made = create_app()
    # Its log would go to a stream that pytest closes while threads still write.
    root.handlers = handlers
    return made


@pytest.fixture
def caller(app: Any, make_key: Callable[..., str]) -> Callable[..., Caller]:
    """`caller("alice")` makes requests with a key of that account; `caller(None)` without one."""
    from app.api import serving

    serving.workers_of.__globals__["_live"].cache_clear()
    return lambda account="alice": Caller(app, make_key(account) if account else None)


@pytest.fixture
def alice(caller: Callable[..., Caller]) -> Caller:
    return caller("alice")


@pytest.fixture
def mallory(caller: Callable[..., Caller]) -> Caller:
    return caller("mallory")


@pytest.fixture
def batches(alice: Caller) -> Batches:
    """Alice's, with their background process played."""
    return Batches(alice)


@pytest.fixture
def work() -> Callable[[str], PlayedWorker]:
    """`work(job_id)` claims a job for a worker that the test plays."""

    def claim(job_id: str) -> PlayedWorker:
        from app.db import transaction
        from app.jobs.queries import find_job

        with transaction() as session:
            job = find_job(session, job_id)
        assert job
        return PlayedWorker(job)

    return claim


@pytest.fixture
def served(clean: dict[str, str]) -> None:
    """A worker serves the model `faulty`, as far as anybody can see: a call waits for its job then."""
    from datetime import timedelta

    from sqlalchemy import func

    from app.api import serving
    from app.db import transaction
    from app.jobs.tables import Worker

    with transaction() as session:
        seen_at = func.now() + timedelta(hours=1)
        session.add(Worker(id="played", model="faulty", slots=8, seen_at=seen_at))
    serving.workers_of.__globals__["_live"].cache_clear()


@pytest.fixture
def pick_up(work: Any) -> Callable[[], PlayedWorker]:
    """`pick_up()` waits for the next queued job, and claims it for a worker that the test plays."""

    def pick() -> PlayedWorker:
        return work(eventually(_first_queued))

    return pick


def _first_queued() -> str | None:
    from sqlalchemy import select

    from app.db import transaction
    from app.jobs.states import Status
    from app.jobs.tables import Job

    with transaction() as session:
        waiting = select(Job.id).where(Job.status == Status.QUEUED).order_by(Job.id).limit(1)
        return session.scalar(waiting)


@pytest.fixture(scope="session")
def threaded_server(app: Any) -> Iterator[str]:
    """Where the app is served by threads of this process, as `127.0.0.1:PORT`."""
    server = make_server("127.0.0.1", 0, app, threaded=True)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@contextmanager
def running_gunicorn(environment: dict[str, str], **settings: Any) -> Iterator[tuple[str, int]]:
    """A gunicorn process: where it is served, and its process id."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    log = VAR_DIR / f"gunicorn-{port}.log"
    variables = {f"LONGHAUL_{name.upper()}": str(value) for name, value in {**settings, "port": port}.items()}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "-c", "config/gunicorn.py", "app.api.wsgi:app"],
            cwd=ROOT,
            env={**os.environ, **environment, **variables},
            stdout=output,
            stderr=output,
        )
    try:
        address = f"127.0.0.1:{port}"
        eventually(lambda: process.poll() is not None or _is_live(address), 20, "gunicorn")
        assert process.poll() is None, log.read_text()
        yield address, process.pid
    finally:
        process.terminate()
        process.wait(15)
        crashes = [line for line in log.read_text().splitlines() if "Traceback" in line]
        assert not crashes, "\n".join(crashes)


def _is_live(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/livez", trust_env=False).is_success
    except httpx.TransportError:
        return False


@pytest.fixture(scope="session")
def gunicorn(services: dict[str, str]) -> Iterator[tuple[str, int]]:
    """A gunicorn process that is quick to lose patience."""
    with running_gunicorn(services, write_timeout_seconds=1, ping_seconds=1, max_followers=50) as running:
        yield running
