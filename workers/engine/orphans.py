"""Ties the life of vLLM's child processes to their worker's. vLLM loads `die_with_parent` in each of its
processes, as a plugin (see pyproject.toml); without it a `kill -9` of the worker leaves an engine process
that holds the memory. It knows nothing of engines and must stay cheap to import.
"""

import ctypes
import multiprocessing
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """In a child process, ask the kernel for SIGKILL at the death of the parent. Elsewhere, do nothing.

    The kernel means the *thread* that started the child: an engine is started from a thread that lives as
    long as its process, the engine loop's.
    """
    parent = multiprocessing.parent_process()
    if parent is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # A parent that died before the call above sends no signal any more.
    if os.getppid() != parent.pid:
        os._exit(1)
