"""A killed worker leaves no engine process behind."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

import psutil
import pytest

from workers.engine.orphans import die_with_parent

PARENT = """
import multiprocessing, time
from tests.engine.test_orphans import linger
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=linger)
    child.start()
    child.join()
"""


def linger() -> None:
    die_with_parent()
    sys.stdout.write(f"{os.getpid()}\n")
    sys.stdout.flush()
    time.sleep(60)


def is_gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's death signal is Linux's")
def test_a_child_process_dies_with_its_killed_parent(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        child = int(parent.stdout.readline())
        assert psutil.pid_exists(child)
        parent.send_signal(signal.SIGKILL)
        assert is_gone_within(child, seconds=2)


def test_a_process_that_is_no_child_is_left_alone():
    assert multiprocessing.parent_process() is None
    die_with_parent()


def test_vllm_finds_the_plug_in():
    (plug_in,) = [
        found
        for found in entry_points(group="vllm.general_plugins")
        if found.name == "longhaul_die_with_parent"
    ]
    assert plug_in.load() is die_with_parent
