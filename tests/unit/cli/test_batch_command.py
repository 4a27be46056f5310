"""`longhaul batch watch`, as a shell and a terminal see it."""

import json
import re
import signal
import subprocess

import pytest

from tests.unit.cli.batches import BATCH_ID, batch, errors, fault
from tests.unit.cli.conftest import CUT, HANG
from tests.unit.cli.test_command import MAIN, environment, in_terminal, run  # noqa: F401 - one is a fixture

AT = "2026-01-01T00:00:00Z"


def event(seq, name, **fields):
    status = {} if name == "progress" else {"status": name}
    return {"type": f"batch.{name}", "seq": seq, "batch_id": BATCH_ID, "at": AT, **status, **fields}


PROGRESS = event(
    3,
    "progress",
    request_counts={"total": 10, "completed": 4, "failed": 1},
    running=2,
    lines_per_second=2.5,
    tokens_per_second=80.0,
    estimated_finish_at=1_767_225_602,
)


ENDED = batch(
    "completed",
    10,
    9,
    1,
    completed_at=1_767_225_610,
    output_file_id="file_o",
    errors=errors(fault(7, "Input should be\x1b[2J a string.", column=3)),
)


def test_a_batch_is_watched_to_its_end_and_its_bad_lines_are_named_once(script, environment):  # noqa: F811
    script.job = batch("validating", 0)
    # It ends while the connection is down.
    script.connections = [[event(1, "validating"), event(2, "in_progress"), PROGRESS, (ENDED,), CUT]]
    ran = run(environment, "batch", "watch", BATCH_ID)
    assert (ran.returncode, ran.stdout) == (2, b"")
    said = ran.stderr.decode().splitlines()
    assert said.count("line 7, column 3: Input should be␛[2J a string.") == 1
    assert said[-2].startswith("completed · 10 lines, 9 completed, 1 failed · ")
    assert said[-1] == f"Answers: longhaul batch output {BATCH_ID}   (file file_o)"


def test_a_broken_connection_is_made_again_where_it_was(script, environment):  # noqa: F811
    script.job = batch("in_progress")
    script.connections = [[event(2, "in_progress"), PROGRESS, CUT], [503], [event(4, "completed"), 1000]]
    run(environment, "batch", "watch", BATCH_ID)
    assert [path.partition("?after=")[2] for path in script.asked] == ["0", "3", "3"]


def test_the_end_of_a_batch_that_has_ended_is_told_at_once_and_as_json_if_wanted(script, environment):  # noqa: F811
    script.job = ENDED
    ran = run(environment, "batch", "watch", BATCH_ID, "--json")
    assert json.loads(ran.stdout) == ENDED
    assert script.asked == []
    assert "in_progress" not in ran.stderr.decode()


def test_a_terminal_shows_a_bar_and_ends_with_the_verdict_alone(script, environment):  # noqa: F811
    script.job = batch("in_progress")
    script.connections = [[PROGRESS, CUT], [event(4, "finalizing"), (ENDED,), event(5, "completed"), 1000]]
    received, exit_status = in_terminal(environment, "batch", "watch", BATCH_ID)
    assert exit_status == 2
    assert "━".encode() in received
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", received.decode()).split("completed · ")[-1]
    assert "━" not in last


def test_ctrl_c_leaves_the_batch_running_and_says_so(script, environment):  # noqa: F811
    script.job = batch("in_progress")
    script.connections = [[event(2, "in_progress"), HANG]]
    process = subprocess.Popen([*MAIN, "batch", "watch", BATCH_ID], env=environment, stderr=subprocess.PIPE)
    assert process.stderr
    assert process.stderr.readline().startswith(b"in_progress")
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"The batch goes on" in rest
    assert f"longhaul batch cancel {BATCH_ID}".encode() in rest


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["batch", "submit", "/nonexistent.jsonl"], b"cannot be read"),
        (["batch", "estimate", "/"], b"cannot be read"),
        (["batch", "show", "batch_/../x"], b"No batch with id"),
        (["batch", "cancel", "x?y"], b"No batch with id"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(environment, args, sentence):  # noqa: F811
    ran = run(environment, *args)
    assert (ran.returncode, ran.stderr.count(b"\n")) == (1, 1)
    assert sentence in ran.stderr
