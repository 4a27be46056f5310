"""Runs the Procfile's processes, and the embedded servers where none were given, under supervisord, which
starts again what dies, after a growing delay. It owns processes and their logs, and must not know what the
processes do.
"""

from workers.supervisor.lock import AlreadyRunning, only_one
from workers.supervisor.procfile import read_procfile
from workers.supervisor.programs import Program
from workers.supervisor.stack import Stack, StackFailed, plan
from workers.supervisor.supervisord import ProgramState, Supervisord, SupervisordGone

__all__ = [
    "AlreadyRunning",
    "Program",
    "ProgramState",
    "Stack",
    "StackFailed",
    "Supervisord",
    "SupervisordGone",
    "only_one",
    "plan",
    "read_procfile",
]
