"""What a bench stands on: embedded servers in a throw-away folder, the Procfile's processes on free ports, an
account and its key. Everything ends with the `with` block, also when the bench itself is killed. It knows
nothing of what is measured.
"""

import os
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
from sqlalchemy import select

from app.accounts import keys
from app.db import engine, transaction
from app.dispatch import wake
from app.jobs import submission
from app.jobs.requests import JobRequest
from app.jobs.tables import Worker
from app.redis import client
from config.catalogue import forget_catalogue, price_factors
from config.settings import ROOT, VAR_DIR, process_environment, settings
from workers.embedded import running_postgres, running_valkey
from workers.embedded.server import free_port
from workers.supervisor.procfile import read_procfile

READY_SECONDS: Final = 300.0
STOP_SECONDS: Final = 15.0
LEASH: Final = [sys.executable, "-m", "workers.leash"]


class BenchFailed(Exception):
    """The bench could not measure."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """An account, and the secret of its key."""

    account_id: str
    key: str


class Platform:
    """The processes of one bench; `start` them by their Procfile names."""

    def __init__(self, folder: Path, tenant: Tenant) -> None:
        self.url = settings().base_url
        self.tenant = tenant
        self.key = tenant.key
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start_web(self) -> psutil.Process:
        """The process that serves, which is a child of gunicorn's."""
        master = self.start("web", read_procfile()["web"], lambda: answers(f"{self.url}/readyz"))
        (serving,) = master.children()
        return serving

    def start_background(self) -> psutil.Process:
        return self.start_line("background")

    def start_dispatcher(self) -> psutil.Process:
        return self.start_line("dispatcher")

    def start_worker(self, model: str, app: str = "bench.bare", **environment: str) -> psutil.Process:
        """A worker that also takes orders for bare rounds, or the Celery app of another bench module."""
        command = read_procfile()["gpu"].replace("workers.celery:app", f"{app}:app")
        before = _workers_of(model)  # one that was killed stays in the table for a while
        return self.start(
            "gpu", command, lambda: _workers_of(model) - before, LONGHAUL_MODEL=model, **environment
        )

    def start(self, name: str, command: str, is_ready: Callable[[], Any], **environment: str) -> psutil.Process:
        """Any program, once it is ready. Raises `BenchFailed` with its log where that never comes."""
        process = self._start(name, command, **environment)
        self._wait(is_ready, name)
        return psutil.Process(process.pid)

    def stop(self, name: str) -> None:
        """Ask a process to end, and see to it that it does."""
        process = self._processes.pop(name)
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def kill(self, name: str) -> None:
        """End a process whose work nobody needs any more."""
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop_all(self) -> None:
        for name in reversed(list(self._processes)):
            self.kill(name) if name == "gpu" else self.stop(name)

    def submit(self, bodies: list[dict[str, Any]], tenant: Tenant | None = None) -> list[str]:
        """Put jobs into the line past the web process, where submitting is not what is measured."""
        account_id = (tenant or self.tenant).account_id
        drafts = [draft_of(account_id, JobRequest(**body)) for body in bodies]
        with transaction() as session:
            jobs = [submission.submit(session, draft)[0] for draft in drafts]
        wake()
        return [job.id for job in jobs]

    def start_line(self, name: str) -> psutil.Process:
        """One of the Procfile that nobody has to wait for."""
        return psutil.Process(self._start(name, read_procfile()[name]).pid)

    def _start(self, name: str, command: str, **environment: str) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        with self._log(name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [*LEASH, *shlex.split(command)],
                cwd=ROOT,
                env=process_environment(PATH=path, **environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self._processes[name]

    def _wait(self, condition: Callable[[], Any], name: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not condition():
            if self._processes[name].poll() is not None or time.monotonic() > deadline:
                raise BenchFailed(f"'{name}' did not start:\n{self._log(name).read_text()[-3000:]}")
            time.sleep(0.05)

    def logs(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"== {path.name}\n{path.read_text()[-2000:]}" for path in self._folder.glob("*.log"))

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def draft_of(account_id: str, request: JobRequest) -> submission.Draft:
    """As the web process makes it, but for the tokens of the prompt, which nobody counts here."""
    prompt_tokens = request.input_chars // 4
    window = request.effective_window
    return submission.Draft(
        account_id=account_id,
        kind=request.kind,
        model=request.model,
        tier=request.effective_tier,
        request=request.model_dump(mode="json", by_alias=True),
        metadata=request.metadata,
        request_hash=b"bench",
        completion_window=window,
        price_factor=price_factors()[request.effective_tier][window],
        prompt_tokens=prompt_tokens,
        reserved_tokens=prompt_tokens + (request.max_output_tokens or 0),
    )


def open_account(name: str, weight: float = 1.0) -> Tenant:
    """A new one, with a key."""
    with transaction() as session:
        account = keys.create_account(session, name)
        account.weight = weight
        return Tenant(account.id, keys.create_key(session, account, name)[1])


@contextmanager
def platform(models: str = "", **environment: str) -> Iterator[Platform]:
    """Servers that are ready, nothing else started yet. `models` is added to the catalogue."""
    _raise_file_limit()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="longhaul-bench-")))
        (VAR_DIR / "models").mkdir(parents=True, exist_ok=True)
        (folder / "models").symlink_to(VAR_DIR / "models")
        given = folder / "catalogue.toml"
        given.write_text((ROOT / "config" / "catalogue.toml").read_text() + models)
        stack.enter_context(
            _environment(
                LONGHAUL_VAR_DIR=str(folder),
                LONGHAUL_CATALOGUE=str(given),
                LONGHAUL_PORT=str(free_port()),
                LONGHAUL_LOG_LEVEL="WARNING",
                DATABASE_URL=stack.enter_context(running_postgres(folder / "postgres")),
                REDIS_URL=stack.enter_context(running_valkey(folder / "valkey")),
                **environment,
            )
        )
        _migrate()
        stack.callback(lambda: engine().dispose())
        started = Platform(folder, open_account("bench"))
        stack.callback(started.stop_all)
        try:
            yield started
        except Exception:
            print(started.logs(), file=sys.stderr)
            raise


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Our environment and our children's: nothing of an installation that may run here, but `values`."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith("LONGHAUL_")]:
        del os.environ[name]
    os.environ.update(values)
    for cached in (settings, engine, client):
        cached.cache_clear()
    forget_catalogue()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _migrate() -> None:
    from alembic import command  # noqa: PLC0415 - slow, and needed in the parent process alone
    from alembic.config import Config  # noqa: PLC0415 - as above

    command.upgrade(Config(toml_file=ROOT / "pyproject.toml"), "head")


def _raise_file_limit() -> None:
    """A stream is an open file, here and in the web process, which inherits the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, timeout=5).is_success
    except httpx.HTTPError:
        return False


def _workers_of(model: str) -> set[str]:
    with transaction() as session:
        return set(session.scalars(select(Worker.id).where(Worker.model == model)))
