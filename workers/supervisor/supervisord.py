"""One supervisord process: started from a configuration, asked for the states of its programs, told to start
one, and stopped with all of them. It knows no program by name.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xmlrpc.client import Fault, ServerProxy

from supervisor.xmlrpc import SupervisorTransport

from config.settings import ROOT
from workers import leash
from workers.failures import StartFailed
from workers.supervisor.programs import Program, render

START_SECONDS: Final = 15.0


@dataclass(frozen=True)
class ProgramState:
    """`state` in supervisord's words; `starts` counts the processes seen since the beginning."""

    name: str
    state: str
    pid: int
    starts: int


class SupervisordGone(StartFailed):
    """The supervisord process has ended, or never came up; the message is one plain sentence."""


class Supervisord:
    def __init__(self, programs: Sequence[Program], environment: dict[str, str], var_dir: Path) -> None:
        self._programs = sorted(programs, key=lambda program: program.rank)
        self._environment = environment
        self._var_dir = var_dir
        self._pids: dict[str, set[int]] = defaultdict(set)
        self._process: subprocess.Popen[bytes] | None = None
        self._socket_folder: Path | None = None

    def start(self, keep_open: Sequence[int] = ()) -> None:
        """Start it, and with it the programs that start by themselves; `keep_open`: descriptors it inherits."""
        # A socket's path has 107 characters at most, and a checkout can lie deeper than that.
        self._socket_folder = Path(tempfile.mkdtemp(prefix="longhaul-"))
        socket = self._socket_folder / "supervisord"
        configuration = self._var_dir / "run" / "supervisord.conf"
        configuration.write_text(render(self._programs, root=ROOT, socket=socket))
        supervisord = [sys.executable, "-m", "supervisor.supervisord", "-n", "-c", "run/supervisord.conf"]
        with (self._var_dir / "log" / "supervisord.out").open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 (our own interpreter)
                [sys.executable, leash.__file__, *supervisord],
                cwd=self._var_dir,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # the terminal's Ctrl-C is for us alone; we then stop the rest in order
                pass_fds=keep_open,
            )
        deadline = time.monotonic() + START_SECONDS
        while not socket.exists():
            self.check()
            if time.monotonic() > deadline:
                raise SupervisordGone(f"supervisord did not start; see {self._var_dir / 'log'}.")
            time.sleep(0.02)

    def check(self) -> None:
        """Raises `SupervisordGone`."""
        if self._process is None or self._process.poll() is not None:
            raise SupervisordGone(f"supervisord has ended; see {self._var_dir / 'log' / 'supervisord.out'}.")

    def start_program(self, name: str) -> None:
        """Returns at once; see `states` for what became of it."""
        self._call("supervisor.startProcess", name, False)

    def states(self) -> dict[str, ProgramState]:
        found = {}
        for entry in self._call("supervisor.getAllProcessInfo"):
            name, pid = str(entry["name"]), int(entry["pid"])
            self._pids[name].update({pid} - {0})
            found[name] = ProgramState(name, str(entry["statename"]), pid, len(self._pids[name]))
        return found

    def stop(self) -> None:
        """Stop every program, in descending rank, then supervisord itself, and wait for the end of it."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(sum(program.stop_seconds for program in self._programs) + 10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._socket_folder is not None:
            shutil.rmtree(self._socket_folder, ignore_errors=True)

    def _call(self, method: str, *arguments: Any) -> Any:
        """Raises `SupervisordGone`."""
        self.check()
        assert self._socket_folder is not None
        transport = SupervisorTransport(None, None, f"unix://{self._socket_folder / 'supervisord'}")
        try:
            with ServerProxy("http://127.0.0.1", transport=transport) as proxy:
                return getattr(proxy, method)(*arguments)
        except (OSError, Fault) as error:
            self.check()
            raise SupervisordGone(f"supervisord refused {method}: {error}.") from error
