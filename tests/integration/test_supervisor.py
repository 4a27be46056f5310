"""The supervisor with small programs of the tests' own, and the lock that keeps a folder to one Longhaul."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from config.settings import ROOT, process_environment
from workers.supervisor import AlreadyRunning, Program, Supervisord, SupervisordGone, only_one, read_procfile
from workers.supervisor.stack import Stack, StackFailed

STAYS = "import time; print('up', flush=True); time.sleep(600)"
ENDS = "print('bye', flush=True)"


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Program]:
    """Makes a program out of Python source."""

    def make(
        source: str, name: str = "it", *, rank: int = 1, stop_seconds: float = 5, stable_seconds: int = 1
    ) -> Program:
        script = tmp_path / f"{name}.py"
        script.write_text(textwrap.dedent(source))
        return Program(name, f"{sys.executable} {script}", rank, stop_seconds, stable_seconds=stable_seconds)

    return make


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., Supervisord]]:
    running = []

    def start(*programs: Program, var_dir: Path = tmp_path) -> Supervisord:
        for folder in ("run", "log"):
            (var_dir / folder).mkdir(parents=True, exist_ok=True)
        supervisord = Supervisord(programs, process_environment(), var_dir)
        running.append(supervisord)
        supervisord.start()
        return supervisord

    yield start
    for supervisord in running:
        supervisord.stop()


def start(supervisord: Supervisord, name: str = "it") -> int:
    """The pid of a program that has come up."""
    supervisord.start_program(name)
    wait_for(lambda: supervisord.states()[name].state == "RUNNING")
    return supervisord.states()[name].pid


def test_a_program_that_is_killed_is_started_again(supervise, program):
    supervisord = supervise(program(STAYS))
    pid = start(supervisord)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: supervisord.states()["it"].pid not in {0, pid})
    wait_for(lambda: supervisord.states()["it"].state == "RUNNING")
    assert supervisord.states()["it"].starts == 2


def test_a_program_that_ends_at_once_is_tried_again_after_a_growing_delay(supervise, program, tmp_path):
    source = "import time; open('starts', 'a').write(f'{time.monotonic()}\\n')"
    supervisord = supervise(program(source.replace("starts", str(tmp_path / "starts")), stable_seconds=20))
    supervisord.start_program("it")
    starts = tmp_path / "starts"
    wait_for(lambda: starts.exists() and len(starts.read_text().split()) >= 5)
    times = [float(line) for line in starts.read_text().split()]
    assert times[4] - times[3] > times[1] - times[0]


def test_a_programs_output_is_in_its_log(supervise, program, tmp_path):
    supervisord = supervise(program("import sys; print('out', flush=True); sys.exit('err')"))
    supervisord.start_program("it")
    log = tmp_path / "log" / "it.log"
    wait_for(lambda: log.exists() and "err" in log.read_text())
    assert "out" in log.read_text()


def test_stop_asks_first_and_leaves_nothing(supervise, program, tmp_path):
    source = f"""
        import pathlib, signal, sys, time
        def leave(*_):
            pathlib.Path({str(tmp_path / "said")!r}).write_text("goodbye")
            sys.exit()
        signal.signal(signal.SIGTERM, leave)
        time.sleep(600)
    """
    supervisord = supervise(program(source))
    pid = start(supervisord)
    supervisord.stop()
    assert (tmp_path / "said").read_text() == "goodbye"
    assert not psutil.pid_exists(pid)
    with pytest.raises(SupervisordGone):
        supervisord.states()


def test_a_program_that_does_not_stop_in_time_is_killed_with_its_children(supervise, program, tmp_path):
    source = f"""
        import pathlib, signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        pathlib.Path({str(tmp_path / "child")!r}).write_text(str(child.pid))
        time.sleep(600)
    """
    supervisord = supervise(program(source, stop_seconds=1))
    pid = start(supervisord)
    child = int((tmp_path / "child").read_text())
    supervisord.stop()
    wait_for(lambda: not psutil.pid_exists(pid))
    wait_for(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)


def test_programs_stop_one_after_the_other_the_highest_rank_first(supervise, program, tmp_path):
    source = f"""
        import signal, sys, time
        def leave(*_):
            time.sleep(0.3)
            open({str(tmp_path / "order")!r}, "a").write("NAME ")
            sys.exit()
        signal.signal(signal.SIGTERM, leave)
        time.sleep(600)
    """
    ranks = {"server": 1, "web": 2, "gpu": 3}
    supervisord = supervise(
        *(program(source.replace("NAME", name), name, rank=rank) for name, rank in ranks.items())
    )
    for name in ranks:
        start(supervisord, name)
    supervisord.stop()
    assert (tmp_path / "order").read_text().split() == ["gpu", "web", "server"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's parent-death signal")
def test_a_killed_supervisor_leaves_nothing_running(supervise, program, tmp_path):
    supervisord = supervise(program(STAYS))
    pid = start(supervisord)
    os.kill(int((tmp_path / "run" / "supervisord.pid").read_text()), signal.SIGKILL)
    wait_for(lambda: not psutil.pid_exists(pid))
    with pytest.raises(SupervisordGone):
        supervisord.check()


def test_it_runs_from_a_deep_folder_with_odd_characters(supervise, program, tmp_path):
    folder = tmp_path / ("deep folder " * 10 + "!") / ("100% " * 10 + "!") / ("x" * 60)
    supervisord = supervise(program(STAYS), var_dir=folder)
    start(supervisord)
    wait_for(lambda: "up" in (folder / "log" / "it.log").read_text())


def test_waiting_ends_with_the_log_of_a_program_that_keeps_ending(supervise, program, tmp_path):
    supervisord = supervise(program("import sys; sys.exit('no engine here')"))
    stack = Stack(process_environment(), supervisord, tmp_path)
    supervisord.start_program("it")
    with pytest.raises(StackFailed, match=r"(?s)No worker serves.*keeps ending.*it\.log.*no engine here"):
        stack.wait_until(lambda: False, ["it"], 60, "No worker serves it")


def test_waiting_ends_when_the_time_is_over(supervise, program, tmp_path):
    stack = Stack(process_environment(), supervise(program(STAYS)), tmp_path)
    with pytest.raises(StackFailed, match=r"Nothing comes: not within 0 s"):
        stack.wait_until(lambda: False, ["it"], 0.2, "Nothing comes")


def test_a_release_that_fails_shows_the_end_of_its_log(supervise, program, tmp_path):
    command = program("import sys; sys.exit('no such table')", "release").command
    stack = Stack(process_environment(), supervise(), tmp_path, {"release": command})
    with pytest.raises(StackFailed, match=r"(?s)could not be brought up to date.*no such table"):
        stack.release()


def test_a_folder_has_one_longhaul_at_a_time(tmp_path):
    with (
        only_one(tmp_path / "lock", lambda: None),
        pytest.raises(AlreadyRunning, match=str(os.getpid())),
        only_one(tmp_path / "lock", lambda: None),
    ):
        pass
    with only_one(tmp_path / "lock", lambda: None):
        pass


def test_a_start_waits_for_the_rest_of_a_run_that_was_killed(tmp_path):
    """A child that inherited the lock, as supervisord does, still holds it when its parent is gone."""
    source = f"""
        import subprocess, sys, pathlib
        from workers.supervisor import only_one
        with only_one(pathlib.Path({str(tmp_path / "lock")!r}), lambda: None) as lock:
            child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=0, pass_fds=[lock])
            print("ready", flush=True)
            child.wait()
    """
    command = [sys.executable, "-c", textwrap.dedent(source)]
    parent = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    parent.stdout.readline()
    parent.kill()
    parent.wait()
    waits = []

    def on_wait() -> None:
        waits.append(1)
        parent.stdin.close()  # and with its input the child ends

    with only_one(tmp_path / "lock", on_wait), parent.stdout:
        assert waits == [1]


def test_the_procfile_names_what_longhaul_runs():
    assert list(read_procfile()) == ["release", "web", "gpu", "background", "dispatcher", "batches", "webhooks"]


def test_a_procfile_line_that_is_no_process_is_refused(tmp_path):
    (tmp_path / "Procfile").write_text("# fine\n\nweb: gunicorn\nnonsense\n")
    with pytest.raises(ValueError, match="line 4"):
        read_procfile(tmp_path / "Procfile")
