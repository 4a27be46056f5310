"""Truths about the repository: what is said twice is the same, and what is said once is nowhere else."""

import ast
import re
from pathlib import Path

import pytest

from app.jobs.states import TERMINAL, TRANSITIONS, Status
from app.jobs.tables import Job
from config.queues import Tier, queues_of
from workers.supervisor.procfile import read_procfile

ROOT = Path(__file__).parent.parent.parent
CODE = [path for folder in ("app", "workers", "config") for path in (ROOT / folder).rglob("*.py")]


def test_the_environment_is_read_in_one_place():
    readers = {str(path.relative_to(ROOT)) for path in CODE if "os.environ" in path.read_text()}
    assert readers <= {"config/settings.py"}


def test_app_takes_the_time_from_its_clock():
    forbidden = re.compile(r"datetime\.(utc)?now\(|time\.(time|sleep|monotonic)\(")
    offenders = [
        path
        for path in (ROOT / "app").rglob("*.py")
        if forbidden.search(path.read_text()) and path.name != "clock.py"
    ]
    assert [path for path in offenders if "cli" not in path.parts] == []


def test_nobody_but_move_assigns_a_status():
    writers = [
        path.name
        for path in CODE
        if "cli" not in path.parts
        and re.search(r"\.status\s*=[^=]|status=Status|\"status\": target", path.read_text())
    ]
    assert set(writers) <= {"moves.py", "submission.py"}


def test_no_status_is_compared_as_a_string():
    words = "|".join(status.value for status in Status)
    pattern = re.compile(rf"status\s*[!=]=\s*[\"']({words})[\"']")
    assert [path for path in (ROOT / "app" / "jobs").rglob("*.py") if pattern.search(path.read_text())] == []


def test_every_status_is_known_to_the_database():
    (check,) = (c for c in Job.__table__.constraints if str(c.name) == "status_known")
    assert set(re.findall(r"'(\w+)'", str(check.sqltext))) == set(Status)


def test_every_status_but_the_first_is_reached_by_some_transition():
    assert {transition.target for transition in TRANSITIONS.values()} == set(Status)


def test_nothing_leaves_a_terminal_status():
    assert all(not transition.sources & TERMINAL for transition in TRANSITIONS.values())


def test_queues_sort_in_the_order_in_which_a_worker_looks():
    assert queues_of("m") == sorted(queues_of("m"))
    assert queues_of("m")[0] == "q0.interactive.m"
    assert len(queues_of("m")) == len(Tier)


def test_the_procfile_names_programs_that_exist():
    commands = read_procfile(ROOT / "Procfile")
    assert list(commands) == [
        "release",
        "web",
        "gpu",
        "background",
        "dispatcher",
        "batches",
        "webhooks",
    ]
    for module in re.findall(r"(?:-m|-A) ([\w.]+)", " ".join(commands.values())):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module


def test_migrations_are_one_line_and_named_by_revision():
    heads = []
    for path in sorted((ROOT / "migrations" / "versions").glob("*.py")):
        values = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        assert path.name.startswith(f"{values['revision']}_")
        assert values["down_revision"] == (heads[-1] if heads else None)
        heads.append(values["revision"])


def test_the_readme_names_only_commands_that_exist():
    from typer.main import get_command

    from app.cli import app

    readme = (ROOT / "README.md").read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make ([a-z]+)", readme, re.MULTILINE)) == {
        "setup",
        "run",
        "test",
        "check",
        "bench",
    }
    assert targets >= {"setup", "run", "test", "check", "bench"}
    commands = get_command(app).commands
    for command in re.findall(r"longhaul ([a-z]+)", readme):
        assert command in commands, command


def test_every_setting_in_the_readme_exists():
    from config.settings import Settings

    names = {f"LONGHAUL_{name.upper()}" for name in Settings.model_fields}
    assert set(re.findall(r"LONGHAUL_[A-Z_]+", (ROOT / "README.md").read_text())) <= names


@pytest.mark.parametrize(
    "path", [p for p in CODE if p.name != "__main__.py"], ids=lambda p: str(p.relative_to(ROOT))
)
def test_every_module_says_what_it_owns(path):
    if path.read_text().strip():
        assert ast.get_docstring(ast.parse(path.read_text())), path
