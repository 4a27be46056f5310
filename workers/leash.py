"""Ties a process's life to its parent's, so that a supervisor that is killed leaves nothing running: `python -m
workers.leash PROGRAM ARGUMENTS` becomes the program. It knows nothing of what it runs.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(number: signal.Signals) -> None:
    """Have the kernel send us `number` when our parent dies. Linux alone has this; elsewhere the next start of
    the embedded servers stops what was left.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(number))


def main(command: list[str]) -> None:
    die_with_parent(signal.SIGTERM)
    try:
        os.execvp(command[0], command)  # noqa: S606 (the point is to become the program, without a shell)
    except OSError as error:
        sys.exit(f"{command[0]} could not be started: {error.strerror}.")


if __name__ == "__main__":
    main(sys.argv[1:])
