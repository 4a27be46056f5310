"""What a process loads, which import-linter cannot see."""

import subprocess
import sys

import pytest


def loads(statement: str, *modules: str) -> list[str]:
    """Those of `modules` that a fresh interpreter has loaded after `statement`."""
    code = f"{statement}\nimport sys; print(*[m for m in {modules!r} if m in sys.modules])"
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    return ran.stdout.split()


@pytest.mark.parametrize(
    ("statement", "strangers"),
    [
        ("import app", ("flask", "celery", "sqlalchemy", "vllm", "torch")),
        ("import app.api", ("vllm", "torch", "transformers", "workers")),
        ("import workers.executor", ("flask", "werkzeug", "vllm", "torch")),
        ("import workers.janitor", ("flask", "werkzeug", "vllm", "torch")),
        ("import workers.engine.simulated", ("vllm", "torch", "transformers")),
        ("import app.jobs.lifecycle", ("flask", "celery", "redis")),
        ("import app.streams.channel", ("flask", "celery")),
        ("import app.cli", ("flask", "celery", "sqlalchemy", "httpx", "workers")),
    ],
)
def test_a_process_loads_only_what_it_needs(statement, strangers):
    assert loads(statement, *strangers) == []
