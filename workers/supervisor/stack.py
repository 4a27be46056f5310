"""Longhaul's own processes, in the order in which they come up: servers, migrations, the rest. It knows the
Procfile's names and the addresses that its processes are told, and nothing of HTTP or jobs.
"""

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg
import redis

from config.settings import ROOT, process_environment, settings
from workers.embedded import SERVERS, Server
from workers.failures import StartFailed
from workers.supervisor.procfile import read_procfile
from workers.supervisor.programs import Program, log_of
from workers.supervisor.supervisord import Supervisord

FAILED_STARTS: Final = 3  # a program that was started more often than this while we wait will not come up
RELEASE: Final = "release"
# Stopped from the last to the first: workers drain while web still shows their streams, servers go last.
RANKS: Final = {
    "postgres": 10,
    "valkey": 20,
    "background": 30,
    "webhooks": 32,
    "batches": 34,
    "dispatcher": 35,
    "web": 40,
    "gpu": 50,
}
STOP_SECONDS: Final = {
    "postgres": 70.0,
    "valkey": 70.0,
    "background": 20.0,
    "webhooks": 30.0,
    "batches": 10.0,
    "dispatcher": 10.0,
    "web": 30.0,
}
ENGINE_STOP_SECONDS: Final = 30.0
STABLE_SECONDS: Final = {"gpu": 10}


class StackFailed(StartFailed):
    """Longhaul's processes did not come up; the message is plain sentences."""


@dataclass(frozen=True)
class Stack:
    """`environment` is what every process gets: addresses, model, port."""

    environment: dict[str, str]
    supervisord: Supervisord
    var_dir: Path
    commands: dict[str, str] = field(default_factory=read_procfile)

    @property
    def database_url(self) -> str:
        return self.environment["DATABASE_URL"]

    @property
    def redis_url(self) -> str:
        return self.environment["REDIS_URL"]

    def wait_until(self, is_so: Callable[[], bool], programs: Sequence[str], seconds: float, what: str) -> None:
        """Wait for `what`. Raises `StackFailed` when the time is over, or when one of the `programs` that it
        depends on keeps dying.
        """
        deadline = time.monotonic() + seconds
        while not is_so():
            states = self.supervisord.states()
            for name in programs:
                state = states.get(name)
                if state and (state.starts > FAILED_STARTS or state.state == "FATAL"):
                    raise StackFailed(f"{what}: the {name} process keeps ending.\n{self.last_lines(name)}")
            if time.monotonic() > deadline:
                ends = "\n".join(self.last_lines(name) for name in programs if name in states)
                raise StackFailed(f"{what}: not within {seconds:.0f} s.\n{ends}".rstrip())
            time.sleep(0.1)

    def servers_are_ready(self) -> bool:
        return database_answers(self.database_url) and redis_answers(self.redis_url)

    def release(self) -> None:
        """Run the Procfile's release line to its end. Raises `StackFailed`."""
        log = log_of(RELEASE, self.var_dir)
        with log.open("wb") as output:
            done = subprocess.run(  # noqa: S603 (the Procfile is ours)
                [sys.executable, "-m", "workers.leash", *shlex.split(self.commands[RELEASE])],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
            )
        if done.returncode:
            raise StackFailed(f"The database could not be brought up to date.\n{self.last_lines(RELEASE)}")

    def start_programs(self) -> None:
        """Start the Procfile's processes; they come up on their own."""
        for name in self.commands:
            if name != RELEASE:
                self.supervisord.start_program(name)

    def last_lines(self, name: str, count: int = 15) -> str:
        """The end of a process's log, and where the log is."""
        log = log_of(name, self.var_dir)
        lines = log.read_text(errors="replace").splitlines()[-count:] if log.exists() else []
        return "\n".join([f"The end of {log}:", *(f"    {line[:300]}" for line in lines or ["(empty)"])])


def plan(model: str, host: str, port: int) -> Stack:
    """The stack for this machine: embedded servers where the settings name none."""
    var_dir = settings().var_dir.resolve()
    for folder in ("run", "log"):
        (var_dir / folder).mkdir(parents=True, exist_ok=True)
    embedded = _embedded_servers(var_dir)
    urls = {"postgres": settings().database_url, "valkey": settings().redis_url}
    urls |= {server.name: server.url for server in embedded}
    environment = process_environment(
        DATABASE_URL=urls["postgres"],
        REDIS_URL=urls["valkey"],
        LONGHAUL_VAR_DIR=str(var_dir),
        LONGHAUL_MODEL=model,
        LONGHAUL_HOST=host,
        LONGHAUL_PORT=str(port),
        PYTHONUNBUFFERED="1",
    )
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment.get('PATH', '/usr/bin:/bin')}"
    return Stack(environment, Supervisord(_programs(embedded), environment, var_dir), var_dir)


def _embedded_servers(var_dir: Path) -> list[Server]:
    wanted = {"postgres": not settings().database_url, "valkey": not settings().redis_url}
    return [kind(var_dir / name) for name, kind in SERVERS.items() if wanted[name]]


def _programs(embedded: Sequence[Server]) -> list[Program]:
    stop_seconds = {**STOP_SECONDS, "gpu": settings().drain_seconds + ENGINE_STOP_SECONDS}
    servers = {
        server.name: f"python -m workers.embedded {server.name} --port {server.port}" for server in embedded
    }
    processes = {name: command for name, command in read_procfile().items() if name != RELEASE}
    return [
        Program(
            name,
            command,
            RANKS.get(name, 30),
            stop_seconds.get(name, 20.0),
            starts_by_itself=name in servers,
            stable_seconds=STABLE_SECONDS.get(name, 3),
        )
        for name, command in {**servers, **processes}.items()
    ]


def database_answers(url: str) -> bool:
    try:
        psycopg.connect(url.replace("postgresql+psycopg://", "postgresql://", 1), connect_timeout=5).close()
    except psycopg.Error:
        return False
    return True


def redis_answers(url: str) -> bool:
    try:
        with redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False
