"""One stack of the Procfile's processes for all tests of this folder: two web processes, and a worker with the
simulated engine. The clients are the real ones; they reach nothing but this machine.
"""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from tests.acceptance.openai.recording import Recorder
from tests.acceptance.stack import Stack, running
from tests.conftest import ROOT
from workers.embedded.server import free_port

# Read when agents and langsmith are imported.
os.environ |= {
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
}

MODEL = "cued"
CATALOGUE = """
[models.cued]
engine = "simulated"
context_tokens = 4096
slots = 16
default_output_tokens = 256
tool_parser = "hermes"
reasoning_parser = "think"
price = { input = "2", output = "4", cached = "1" }

[models.cued.engine_options]
cues = true
step_seconds = 0.005
prefill_tokens_per_second = 100000
"""
SYNC_SECONDS = 4.0  # on the second web process
UNSTORED_SECONDS = 3.0

_guard = {"is_on": False}


def _refuse_other_machines(event: str, arguments: tuple[Any, ...]) -> None:
    if _guard["is_on"] and event == "socket.connect":
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else "127.0.0.1"
        if host not in {"127.0.0.1", "::1", "localhost"}:
            raise PermissionError(f"a client wanted to reach {host}")


sys.addaudithook(_refuse_other_machines)


@pytest.fixture(autouse=True)
def _only_this_machine() -> Iterator[None]:
    _guard["is_on"] = True
    yield
    _guard["is_on"] = False


@pytest.fixture(scope="package")
def api_key(services: dict[str, str]) -> str:
    from sqlalchemy import text

    from app.accounts import keys
    from app.db import transaction
    from app.redis import client
    from app.tables import metadata

    with transaction() as session:
        session.execute(text(f"TRUNCATE {', '.join(metadata.tables)} CASCADE"))
        secret = keys.create_key(session, keys.create_account(session, "alice"), "test")[1]
    client().flushdb()
    return secret


@pytest.fixture(scope="package")
def stack(services: dict[str, str], api_key: str, tmp_path_factory: Any) -> Iterator[Stack]:
    folder: Path = tmp_path_factory.mktemp("openai")
    catalogue = folder / "catalogue.toml"
    catalogue.write_text((ROOT / "config" / "catalogue.toml").read_text() + CATALOGUE)
    environment = {
        **services,
        "LONGHAUL_CATALOGUE": str(catalogue),
        "LONGHAUL_MODEL": MODEL,
        "LONGHAUL_UNSTORED_SECONDS": str(UNSTORED_SECONDS),
        "LONGHAUL_PING_SECONDS": "0.3",
    }
    with running(environment, api_key, folder) as started:
        for name in ("background", "dispatcher", "batches", "gpu"):
            started.start(name)
        started.start_web()
        started.wait_for_workers(MODEL, 1)
        yield started


@pytest.fixture(scope="package")
def other_url(stack: Stack) -> str:
    """The second web process, which has little patience with calls that wait."""
    port = free_port()
    stack.environment["LONGHAUL_MAX_SYNC_SECONDS"] = str(SYNC_SECONDS)
    stack.start_web("web2", port)
    del stack.environment["LONGHAUL_MAX_SYNC_SECONDS"]
    return f"http://127.0.0.1:{port}"


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """Of all that the test's clients are answered; at the end it is held against OpenAI's contract."""
    made = Recorder()
    yield made
    made.check()


@pytest.fixture
def make_client(stack: Stack, recorder: Recorder) -> Iterator[Callable[..., OpenAI]]:
    made: list[OpenAI] = []
    stack.wait_for_workers(MODEL, 1)  # a test before this one may have killed it

    def make(url: str = stack.url, **options: Any) -> OpenAI:
        made.append(
            OpenAI(
                base_url=f"{url}/v1",
                http_client=recorder.client(),
                **{"api_key": stack.key, "max_retries": 0, **options},
            )
        )
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(make_client: Callable[..., OpenAI]) -> OpenAI:
    return make_client()


@pytest.fixture
def other(make_client: Callable[..., OpenAI], other_url: str) -> OpenAI:
    return make_client(other_url)
