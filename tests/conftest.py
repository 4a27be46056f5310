"""What every test may use: real servers, a clean database, and factories that are valid by default.

The process's settings point at a throw-away folder from the first import on, so that no test sees (or touches)
the data of a `longhaul up` in the same checkout. Converted models are shared: they are large and read-only.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# A shared machine is slow at times; an example that takes long is no failure.
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")

ROOT = Path(__file__).parent.parent
VAR_DIR = Path(tempfile.mkdtemp(prefix="longhaul-test-"))
atexit.register(shutil.rmtree, VAR_DIR, ignore_errors=True)
MODELS = ROOT / "var" / "models"
MODELS.mkdir(parents=True, exist_ok=True)
(VAR_DIR / "models").symlink_to(MODELS)

# The shipped catalogue, and a model whose prompts may ask for faults.
CATALOGUE = VAR_DIR / "catalogue.toml"
CATALOGUE.write_text(
    (ROOT / "config" / "catalogue.toml").read_text()
    + """
[models.faulty]
engine = "simulated"
context_tokens = 4096
slots = 8
default_output_tokens = 64

[models.faulty.engine_options]
cues = true
step_seconds = 0.005
prefill_tokens_per_second = 100000
"""
)

TEST_SETTINGS = {
    "LONGHAUL_VAR_DIR": str(VAR_DIR),
    "LONGHAUL_CATALOGUE": str(CATALOGUE),
    "LONGHAUL_MODEL": "faulty",
    "LONGHAUL_LEASE_SECONDS": "2",
    "LONGHAUL_HEARTBEAT_SECONDS": "0.4",
    "LONGHAUL_SEGMENT_INTERVAL_SECONDS": "0.1",
    "LONGHAUL_JANITOR_INTERVAL_SECONDS": "0.1",
    "LONGHAUL_RING_AFTER_SECONDS": "1",
    "LONGHAUL_DRAIN_SECONDS": "1",
}
for name in [name for name in os.environ if name.startswith("LONGHAUL_")]:
    del os.environ[name]
os.environ.update(TEST_SETTINGS)


@pytest.fixture(scope="session")
def services() -> Iterator[dict[str, str]]:
    """Postgres and Valkey, migrated: those of DATABASE_URL and REDIS_URL, else embedded ones. Yields the
    environment that another process needs to use them.
    """
    from alembic import command
    from alembic.config import Config

    from config.settings import settings
    from workers.embedded import running_postgres, running_valkey

    with ExitStack() as stack:
        for variable, running, folder in (
            ("DATABASE_URL", running_postgres, "postgres"),
            ("REDIS_URL", running_valkey, "valkey"),
        ):
            if variable not in os.environ:
                os.environ[variable] = stack.enter_context(running(VAR_DIR / folder))
                stack.callback(os.environ.pop, variable)
        settings.cache_clear()
        command.upgrade(Config(toml_file=ROOT / "pyproject.toml"), "head")
        yield {name: os.environ[name] for name in ("DATABASE_URL", "REDIS_URL", *TEST_SETTINGS)}
        from app.db import engine

        engine().dispose()


@pytest.fixture
def clean(services: dict[str, str]) -> dict[str, str]:
    """`services`, emptied."""
    from sqlalchemy import text

    from app.db import transaction
    from app.redis import client
    from app.tables import metadata

    with transaction() as session:
        session.execute(text(f"TRUNCATE {', '.join(metadata.tables)} CASCADE"))
    client().flushdb()
    return services


@pytest.fixture
def make_account(clean: dict[str, str]) -> Callable[..., Any]:
    """`make_account(name="alice")` gives the account."""
    from app.accounts import keys
    from app.db import transaction

    def make(name: str = "alice") -> Any:
        with transaction() as session:
            return keys.find_account(session, name) or keys.create_account(session, name)

    return make


@pytest.fixture
def make_key(make_account: Callable[..., Any]) -> Callable[..., str]:
    """`make_key(account="alice")` gives the secret of a new key."""
    from app.accounts import keys
    from app.db import transaction

    def make(account: str = "alice", name: str = "test") -> str:
        owner = make_account(account)
        with transaction() as session:
            return keys.create_key(session, owner, name)[1]

    return make


@pytest.fixture
def make_job(make_account: Callable[..., Any]) -> Callable[..., Any]:
    """`make_job(input=..., account="alice", idempotency_key=None, prompt_tokens=8, **body)` gives a queued job
    that was never at the gate; it reserves `prompt_tokens` and what it may make.
    """
    from app.db import transaction
    from app.jobs.requests import JobRequest
    from app.jobs.submission import Draft, submit

    def make(
        account: str = "alice", idempotency_key: str | None = None, prompt_tokens: int = 8, **body: Any
    ) -> Any:
        request = JobRequest(**{"model": "faulty", "input": "Say something.", "max_output_tokens": 64, **body})
        draft = Draft(
            account_id=make_account(account).id,
            kind=request.kind,
            model=request.model,
            tier=request.effective_tier,
            request=request.model_dump(mode="json", by_alias=True),
            metadata=request.metadata,
            request_hash=repr(body).encode(),
            idempotency_key=idempotency_key,
            expires_after_seconds=request.expires_after_seconds,
            session_id=request.session_id,
            completion_window=request.effective_window,
            prompt_tokens=prompt_tokens,
            reserved_tokens=prompt_tokens + (request.max_output_tokens or 0),
        )
        with transaction() as session:
            return submit(session, draft)[0]

    return make
