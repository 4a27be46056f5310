"""One Longhaul a folder: a lock that the kernel frees when the last process that holds it has ended, so that a
killed run whose processes are still stopping counts as running.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import psutil

from workers.failures import StartFailed


class AlreadyRunning(StartFailed):
    """Another process runs from this folder."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"Longhaul is already running from this folder (process {pid}).")
        self.pid = pid


@contextmanager
def only_one(path: Path, on_wait: Callable[[], None], wait_seconds: float = 120.0) -> Iterator[int]:
    """The lock's file descriptor, for children to inherit. Waits for the rest of a run whose own process has
    ended (`on_wait` is told once), and raises `AlreadyRunning` at once if that process lives.
    """
    with path.open("a+") as file:
        deadline, told = time.monotonic() + wait_seconds, False
        while not _is_taken(file):
            pid = _owner(file)
            if psutil.pid_exists(pid) or time.monotonic() > deadline:
                raise AlreadyRunning(pid)
            if not told:
                on_wait()
                told = True
            time.sleep(0.2)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield file.fileno()


def _is_taken(file: TextIO) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _owner(file: TextIO) -> int:
    file.seek(0)
    text = file.read()
    return int(text) if text.isdigit() else 0
