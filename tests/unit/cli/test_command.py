"""The command itself, as a shell and a terminal see it."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import CUT, HANG, JOB_ID, delta, rewind, status

MAIN = [sys.executable, "-c", "import sys; sys.argv[0] = 'longhaul'; from app.cli import main; main()"]
BEL, ESC = b"\x07", b"\x1b"


@pytest.fixture
def environment(script, tmp_path):
    wanted = {name: value for name, value in os.environ.items() if not name.startswith("LONGHAUL_")}
    return {
        **wanted,
        "LONGHAUL_URL": script.url,
        "LONGHAUL_API_KEY": "secret",
        "LONGHAUL_VAR_DIR": str(tmp_path),
        "TERM": "xterm",
        "PYTHONPATH": str(Path.cwd()),
    }


def run(environment, *args, **options):
    return subprocess.run(
        [*MAIN, *args], env=environment, capture_output=True, timeout=30, check=False, **options
    )


def in_terminal(environment, *args):
    """Everything that a terminal of 80 columns receives."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*MAIN, *args], env={**environment, "COLUMNS": "80"}, stdin=child, stdout=child, stderr=child
    )
    os.close(child)
    received = b""
    try:
        while select.select([parent], [], [], 20)[0] and (data := os.read(parent, 65_536)):
            received += data
    except OSError:  # how a pty ends
        pass
    os.close(parent)
    return received, process.wait(20)


@pytest.mark.parametrize(
    ("ending", "exit_status"),
    [("completed", 0), ("incomplete", 2), ("failed", 1), ("cancelled", 1), ("expired", 1)],
)
def test_the_exit_status_says_how_the_job_ended(script, environment, ending, exit_status):
    script.connections = [[delta(1, 0, "Hi"), status(2, ending), 1000]]
    ran = run(environment, "watch", JOB_ID)
    assert (ran.stdout, ran.returncode) == (b"Hi\n", exit_status)
    assert ending.encode() in ran.stderr


def test_output_to_a_pipe_survives_a_broken_connection_without_a_trace(script, environment):
    script.connections = [
        [status(1, "in_progress"), delta(2, 0, "one "), delta(3, 4, "two "), CUT],
        [rewind(5, 4), delta(6, 4, "two three"), status(7, "completed", usage={"output_tokens": 3}), 1000],
    ]
    ran = run(environment, "watch", JOB_ID)
    assert ran.stdout == b"one two three\n"
    assert ESC not in ran.stdout + ran.stderr
    assert b"3 out" in ran.stderr


def test_a_model_cannot_play_tricks_with_a_terminal(script, environment):
    script.connections = [[delta(1, 0, "a\x1b]0;owned\x07b\x1b[2Jc\x9bd\n"), status(2, "completed"), 1000]]
    received, exit_status = in_terminal(environment, "watch", JOB_ID)
    assert exit_status == 0
    assert "a␛]0;owned␇b␛[2Jc".encode() in received
    assert not [trick for trick in (ESC + b"]0", ESC + b"[2J", BEL, "\x9b".encode()) if trick in received]


def test_a_terminal_shows_the_output_once_and_the_progress_below(script, environment):
    words = [f"word{n} " for n in range(120)]
    deltas, offset = [], 0
    for n, word in enumerate(words, 1):
        deltas.append(delta(n, offset, word))
        offset += len(word)
    script.connections = [[*deltas, status(200, "completed", usage={"output_tokens": 120}), 1000]]
    received, _ = in_terminal(environment, "watch", JOB_ID)
    assert b"120 out" in received
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", " ", received.decode()).split()
    assert [word for word in words if word.strip() not in shown] == []


def test_a_waiting_job_says_for_what(script, environment):
    script.job["waiting"] = {"reason": "no_worker", "message": "No worker serves 'one' right now."}
    script.connections = [[status(1, "queued"), HANG]]
    process = subprocess.Popen([*MAIN, "watch", JOB_ID], env=environment, stderr=subprocess.PIPE)
    assert process.stderr
    assert process.stderr.readline() == b"waiting: No worker serves 'one' right now.\n"
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=20)
    assert process.returncode == 130
    assert f"longhaul watch {JOB_ID} --after 1".encode() in rest
    assert f"longhaul cancel {JOB_ID}".encode() in rest


def test_a_job_in_the_line_shows_its_place_on_the_status_line(script, environment):
    moved = {
        "type": "queue.moved",
        "job_id": JOB_ID,
        "position": 18,
        "estimated_start_at": 1_767_225_640,
        "estimated_finish_at": None,
        "at": "2026-01-01T00:00:00Z",
    }
    script.connections = [
        [status(1, "queued"), moved, CUT],
        [status(2, "completed", usage={"output_tokens": 0}), 1000],
    ]
    received, exit_status = in_terminal(environment, "watch", JOB_ID)
    assert exit_status == 0
    assert b"17 jobs are ahead; about 40 s" in received
    # The notice moved no cursor.
    assert [path.partition("?after=")[2] for path in script.asked] == ["0", "1"]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["submit", "x", "--metadata", "nonsense"], b"--metadata takes NAME=VALUE"),
        (["submit", "x", "--json-schema", "/nonexistent"], b"cannot be read"),
        (["get", "job_/../../keys"], b"No job with id"),
        (["jobs", "--url", "http://127.0.0.1:9"], b"No Longhaul answers at http://127.0.0.1:9. Start one with"),
        (["jobs", "--url", "nonsense"], b"is not an address"),
        (["jobs", "--key", "k\u00e9y"], b"The API key"),
        (["jobs", "--key", "a\nb"], b"The API key"),
        (["jobs", "--url", "http://[x"], b"is not an address"),
        (["keys", "list"], b"No database is known here"),
        (["db", "upgrade"], b"No database is known here"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(environment, args, sentence):
    for name in ("DATABASE_URL", "REDIS_URL"):
        environment.pop(name, None)
    ran = run(environment, *args)
    assert ran.returncode == 1
    assert sentence in ran.stderr
    assert b"Traceback" not in ran.stderr


def test_the_key_of_this_machine_is_not_shown_to_another(script, environment, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "local-key").write_text("lh-local\n")
    del environment["LONGHAUL_API_KEY"]
    script.job["status"] = "completed"
    script.job |= {"model": "one", "tier": "batch"}
    assert run(environment, "get", JOB_ID).returncode == 0
    assert script.keys == ["Bearer lh-local"]
    # The same server under a name that need not be this machine's.
    elsewhere = script.url.replace("127.0.0.1", "127.0.0.2")
    run(environment, "get", JOB_ID, "--url", elsewhere)
    assert "Bearer lh-local" not in script.keys[1:]


def test_it_starts_fast_enough_to_be_typed(environment):
    def cpu_seconds():
        before = os.times().children_user
        run(environment, "--help")
        return os.times().children_user - before

    assert min(cpu_seconds() for _ in range(3)) < 0.6
