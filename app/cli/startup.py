"""From nothing to a first answer on this machine, and back to nothing: the order of `longhaul up`, what it says
and what it refuses. `workers.supervisor` owns the processes.
"""

import errno
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import httpx
from rich.console import Console

from app.cli.sample import QUESTION, SampleFailed, local_key, run_sample
from app.cli.steps import step
from config.catalogue import ModelSpec, catalogue
from config.settings import ENV_FILE, settings
from workers.embedded import is_free
from workers.failures import StartFailed
from workers.models import ensure_model, is_complete
from workers.supervisor import AlreadyRunning, Stack, only_one, plan

NEEDED_BYTES: Final = 500_000_000  # what servers and logs take in their first hours
SERVER_SECONDS: Final = 90.0
WEB_SECONDS: Final = 90.0
ENGINE_SECONDS: Final = 1800.0  # large weights from a slow disk
INTERRUPTED: Final = 130
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

console = Console(highlight=False, soft_wrap=True)


def run(*, model: str | None, port: int | None, once: bool) -> int:
    """The exit status."""
    for number in STOP_SIGNALS:
        signal.signal(number, _interrupt)
    try:
        _run(_find_model(model or settings().model), port or settings().port, once=once)
    except (StartFailed, SampleFailed) as error:
        return _give_up(str(error))
    except httpx.HTTPError as error:
        return _give_up(f"The API did not answer as expected: {error}.")
    except OSError as error:
        return _give_up(_sentence(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _run(model: ModelSpec, port: int, *, once: bool) -> None:
    run_dir = settings().var_dir / "run"
    run_dir.mkdir(parents=True, exist_ok=True)
    with _only_one_here(run_dir) as lock:
        _forget_addresses()  # of a run that was killed: they would pass for servers that somebody gave us
        _check_machine(port)
        _prepare_model(model)
        stack = plan(model.name, settings().host, port)
        base_url = f"http://{_local_host()}:{port}"
        try:
            _bring_up(stack, lock, base_url, port)
            with httpx.Client(base_url=base_url, timeout=30) as client:
                _ask(client, stack, model, run_dir / "local-key")
            if not once:
                _stay(stack, base_url, run_dir / "local-key")
        finally:
            _stop(stack)


def _bring_up(stack: Stack, lock: int, base_url: str, port: int) -> None:
    with step(console, "Starting Postgres and Valkey", "Postgres and Valkey answer"):
        stack.supervisord.start(keep_open=[lock])
        stack.wait_until(
            stack.servers_are_ready, ["postgres", "valkey"], SERVER_SECONDS, "The servers do not answer"
        )
    _write_addresses(stack, base_url, port)
    with step(console, "Bringing the database up to date", "The database is up to date"):
        stack.release()
    with step(console, "Starting web, GPU worker and background processes", "The API is ready"):
        stack.start_programs()
        stack.wait_until(lambda: _is_ready(base_url), ["web"], WEB_SECONDS, "The API does not become ready")


def _ask(client: httpx.Client, stack: Stack, model: ModelSpec, key_file: Path) -> None:
    client.headers["Authorization"] = f"Bearer {local_key(key_file, client)}"
    with step(console, f"Loading {model.name} into the engine", f"A worker serves {model.name}"):
        stack.wait_until(
            lambda: _is_served(client, model.name),
            ["gpu", "web"],
            ENGINE_SECONDS,
            f"No worker serves {model.name}",
        )
    console.print(f"\n{QUESTION}", style="bold")
    began = time.monotonic()
    try:
        run_sample(client, model.name, lambda text: console.out(text, end="", highlight=False))
    finally:
        console.print()
    console.print(f"\n✓ Answered ({time.monotonic() - began:.1f} s)")


def _stay(stack: Stack, base_url: str, key_file: Path) -> None:
    console.print(f"\nAPI    {base_url}/v1\nDocs   {base_url}/docs")
    console.print(f"Key    in {key_file}\nLogs   in {stack.var_dir / 'log'}")
    console.print("\nLonghaul is up. Ctrl-C stops it.")
    try:
        while True:
            stack.supervisord.check()
            time.sleep(0.5)
    except KeyboardInterrupt:
        console.print()


def _stop(stack: Stack) -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # stopping is under way; running jobs are being put aside
    with step(console, "Stopping; running jobs finish or are put back in the line", "Everything has stopped"):
        stack.supervisord.stop()
        _forget_addresses()


@contextmanager
def _only_one_here(run_dir: Path) -> Iterator[int]:
    def on_wait() -> None:
        console.print("… Waiting for the processes of an earlier run to end")

    try:
        with only_one(run_dir / "up.lock", on_wait) as lock:
            yield lock
    except AlreadyRunning as error:
        raise StartFailed(
            f"{error} Its API is at {settings().base_url}. To stop it: Ctrl-C there, or kill {error.pid}."
        ) from None


def _find_model(name: str) -> ModelSpec:
    if name not in catalogue():
        raise StartFailed(f"The catalogue has no model {name!r}; it has {', '.join(sorted(catalogue()))}.")
    return catalogue()[name]


def _prepare_model(model: ModelSpec) -> None:
    if not is_complete(model):
        with step(console, f"Making {model.name} ready", f"{model.name} is ready") as shown:
            ensure_model(model, shown.say)


def _check_machine(port: int) -> None:
    free = shutil.disk_usage(settings().var_dir).free
    if free < NEEDED_BYTES:
        raise OSError(errno.ENOSPC, "", str(settings().var_dir))
    if not is_free(port, settings().host):
        raise StartFailed(
            f"Port {port} on {settings().host} is taken by another program. Choose another: "
            f"longhaul up --port {port + 1}, or make run PORT={port + 1}."
        )


def _local_host() -> str:
    """Where we ourselves reach the API: an address that means all interfaces is none to connect to."""
    return "127.0.0.1" if settings().host in {"0.0.0.0", ""} else settings().host  # noqa: S104 (it is compared)


def _write_addresses(stack: Stack, base_url: str, port: int) -> None:
    """Tell a second terminal, and our own use of the database, where everything is."""
    values = {
        "DATABASE_URL": stack.database_url,
        "REDIS_URL": stack.redis_url,
        "LONGHAUL_PORT": str(port),
        "LONGHAUL_URL": settings().url or base_url,
    }
    new = ENV_FILE.with_suffix(".new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    new.write_text("".join(f"{name}='{value}'\n" for name, value in values.items()))
    new.rename(ENV_FILE)
    settings.cache_clear()


def _forget_addresses() -> None:
    ENV_FILE.unlink(missing_ok=True)
    settings.cache_clear()


def _is_ready(base_url: str) -> bool:
    return _succeeds(lambda: httpx.get(f"{base_url}/readyz", timeout=10).is_success)


def _is_served(client: httpx.Client, model: str) -> bool:
    def workers() -> bool:
        models = client.get("/v1/models").raise_for_status().json()["data"]
        return any(entry["id"] == model and entry.get("workers", 0) > 0 for entry in models)

    return _succeeds(workers)


def _succeeds(request: Callable[[], bool]) -> bool:
    try:
        return request()
    except httpx.HTTPError:
        return False


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _give_up(message: str) -> int:
    console.print(message, style="red", markup=False)
    return 1


def _sentence(error: OSError) -> str:
    var_dir = settings().var_dir
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"The disk is full: {var_dir} has no room left, and Longhaul needs at least 0.5 GB."
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}:
        return f"{error.filename or var_dir} cannot be written; LONGHAUL_VAR_DIR names another folder."
    return f"Longhaul could not start: {error}."
