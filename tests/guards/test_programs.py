"""Each program of the Procfile, by itself, knows what it needs: tests that import everything would not notice
what is missing.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from workers.supervisor.procfile import read_procfile

COMMANDS = read_procfile(Path(__file__).parent.parent.parent / "Procfile")
PROGRAMS = {
    "web": "app.api.wsgi",
    "gpu": "workers.celery",
    "background": "workers.janitor",
    "dispatcher": "workers.dispatcher",
    "batches": "workers.batches",
    "webhooks": "workers.webhooks",
}


def test_every_program_is_looked_at():
    assert set(PROGRAMS) == set(COMMANDS) - {"release"}
    for name, module in PROGRAMS.items():
        assert module in COMMANDS[name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_knows_the_table_of_every_foreign_key(name):
    look = f"import {PROGRAMS[name]}; from app.db import Base; Base.metadata.sorted_tables"
    command = [sys.executable, "-W", "ignore", "-c", look]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
