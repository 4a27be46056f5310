"""What supervisord is told of each program, and the configuration file that says it. Values alone: it starts
nothing.
"""

import getpass
import resource
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# supervisord waits one second longer after each failed start, and gives up after this many: in effect never.
START_RETRIES: Final = 100_000
# supervisord lifts its limit of open files to this, and its children inherit it: a stream is a file.
OPEN_FILES: Final = 65_536


@dataclass(frozen=True)
class Program:
    """`rank`: started in ascending order, and stopped in descending order, one after the other."""

    name: str
    command: str
    rank: int
    stop_seconds: float
    starts_by_itself: bool = False
    stable_seconds: int = 3  # an exit sooner than this counts as a failed start, and delays the next one


def render(programs: Iterable[Program], *, root: Path, socket: Path) -> str:
    """The text of supervisord's configuration file, for a supervisord that runs in `var_dir`: it would take an
    absolute path with a percent sign in it for a pattern. Secrets are in the environment, not here.
    """
    sections = [
        _section(
            "supervisord",
            logfile="log/supervisord.log",
            logfile_maxbytes="10MB",
            logfile_backups=1,
            pidfile="run/supervisord.pid",
            minfds=_open_files(),
            user=getpass.getuser(),
            silent="true",
        ),
        _section("unix_http_server", file=socket, chmod="0700"),
        _section("supervisorctl", serverurl=f"unix://{socket}"),
        _section(
            "rpcinterface:supervisor",
            **{"supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"},
        ),
        *(_program(program, root) for program in programs),
    ]
    return "\n".join(sections)


def log_of(name: str, var_dir: Path) -> Path:
    return var_dir / "log" / f"{name}.log"


def _program(program: Program, root: Path) -> str:
    return _section(
        f"program:{program.name}",
        command=f'"{sys.executable}" -m workers.leash {program.command}',
        directory=root,
        priority=program.rank,
        autostart=str(program.starts_by_itself).lower(),
        autorestart="true",
        startsecs=program.stable_seconds,
        startretries=START_RETRIES,
        # SIGTERM goes to the process alone: an engine that got it too would end under the jobs that its worker
        # still drains. SIGKILL, when the time is over, goes to the whole group.
        stopsignal="TERM",
        stopasgroup="false",
        killasgroup="true",
        stopwaitsecs=int(program.stop_seconds),
        redirect_stderr="true",
        stdout_logfile=f"log/{program.name}.log",
        stdout_logfile_maxbytes="20MB",
        stdout_logfile_backups=3,
    )


def _section(title: str, **values: object) -> str:
    lines = [f"{name} = {str(value).replace('%', '%%')}" for name, value in values.items()]
    return "\n".join([f"[{title}]", *lines, ""])


def _open_files() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft, OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES))
