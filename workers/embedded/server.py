"""What the two embedded servers share: a folder with its password and port, one process at most, start, stop
and readiness. It knows neither of their protocols.
"""

import random
import secrets
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, ClassVar, Final, Self

import psutil

from workers.failures import StartFailed
from workers.leash import die_with_parent

HOST: Final = "127.0.0.1"
# Below the range from which the kernel takes ports for outgoing connections: a client that keeps trying a
# port of that range can end up connected to itself, and then the server finds it taken.
PORTS: Final = range(12_000, 30_000)
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 60.0

Process = subprocess.Popen[bytes]
Output = IO[bytes] | int | None


class ServerFailed(StartFailed):
    """An embedded server did not start; the message is one plain sentence."""


class Server(ABC):
    """One server with its data in `folder`; a start first stops an older process that serves that folder."""

    name: ClassVar[str]
    process_name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder = folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = port or self._lasting_port()
        self.password = self._lasting_password()
        self._process: Process | None = None

    @contextmanager
    def running(self, output: Output = subprocess.DEVNULL) -> Iterator[Self]:
        """The server, ready for clients, and stopped at the end. Raises `ServerFailed`."""
        self._stop_older_process()
        self._create_data()
        self._process = self.spawn(output)
        try:
            self._wait_until_ready(self._process)
            self.prepare()
            yield self
        finally:
            _stop(self._process, self.stop_signal)

    def wait(self) -> int:
        """The exit status of the server, once it ends."""
        assert self._process is not None
        return self._process.wait()

    @property
    @abstractmethod
    def url(self) -> str: ...

    @property
    @abstractmethod
    def pid_file(self) -> Path:
        """Lies in the server's working directory."""

    @abstractmethod
    def spawn(self, output: Output) -> Process: ...

    @abstractmethod
    def answers(self) -> bool: ...

    def is_ready(self) -> bool:
        """Whether clients may come, which can be later than the first answer."""
        return self.answers()

    @abstractmethod
    def create_data(self) -> None:
        """Make what the server needs before its first start; it may be half done from an interrupted one."""

    @abstractmethod
    def prepare(self) -> None:
        """Put right what can only be done once the server is ready."""

    def leash(self) -> None:
        """Run in the child before it becomes the server."""
        die_with_parent(self.stop_signal)

    def _create_data(self) -> None:
        try:
            self.create_data()
        except OSError as error:
            raise ServerFailed(f"{self.folder} could not be written: {error.strerror}.") from error

    def _wait_until_ready(self, process: Process) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if process.poll() is not None:
                raise ServerFailed(f"The embedded {self.name} server did not start on port {self.port}.")
            if time.monotonic() > deadline:
                raise ServerFailed(f"The embedded {self.name} server did not answer in {START_SECONDS:.0f} s.")
            time.sleep(0.03)

    def _lasting_port(self) -> int:
        """The port of last time if it is free, so that whoever still knows it finds the server again."""
        file = self.folder / "port"
        self._stop_older_process()
        port = int(file.read_text()) if file.exists() else 0
        if port not in PORTS or not is_free(port):
            port = free_port()
            file.write_text(str(port))
        return port

    def _lasting_password(self) -> str:
        file = self.folder / "password"
        if not file.exists():
            new = self.folder / "password.new"
            new.touch(mode=0o600)
            new.write_text(secrets.token_hex(16))
            new.rename(file)
        return file.read_text()

    def _stop_older_process(self) -> None:
        process = self._older_process()
        if process is not None:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(self.stop_signal)
                process.wait(STOP_SECONDS)

    def _older_process(self) -> psutil.Process | None:
        """The process of the pid file, unless its number now belongs to another program or folder."""
        try:
            process = psutil.Process(int(self.pid_file.read_text().split(maxsplit=1)[0]))
            if process.name() == self.process_name and Path(process.cwd()) == self.pid_file.parent:
                return process
        except (OSError, ValueError, IndexError, psutil.Error):
            pass
        self.pid_file.unlink(missing_ok=True)
        return None


def is_free(port: int, host: str = HOST) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port that nobody listens on; random, so that two starts at once rarely take the same."""
    return next(port for port in random.sample(PORTS, len(PORTS)) if is_free(port))


def _stop(process: Process, number: signal.Signals) -> None:
    process.send_signal(number)  # to a process that has ended: does nothing
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
