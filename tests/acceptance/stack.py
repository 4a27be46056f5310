"""The Procfile's processes for a test: started, killed and started again, spoken to over HTTP and WebSocket."""

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.eventually import eventually
from tests.following import StrictFollower
from workers.embedded.server import free_port
from workers.supervisor.procfile import read_procfile

ROOT = Path(__file__).parent.parent.parent


class Stack:
    """`processes[name]` are those that run; a name is a Procfile line's, with a number for a second one."""

    def __init__(self, environment: dict[str, str], key: str, logs: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = key
        self.logs = logs
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        bin_folder = str(Path(sys.executable).parent)
        self.environment = {
            **os.environ,
            **environment,
            "LONGHAUL_PORT": str(self.port),
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        }
        self.http = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {key}"}, timeout=60, trust_env=False
        )

    def start(self, name: str, **environment: str) -> subprocess.Popen[bytes]:
        command = read_procfile(ROOT / "Procfile")[name.rstrip("0123456789")]
        with (self.logs / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "workers.leash", *shlex.split(command)],
                cwd=ROOT,
                env={**self.environment, **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self.processes[name]

    def start_web(self, name: str = "web", port: int | None = None) -> None:
        self.start(name, **({"LONGHAUL_PORT": str(port)} if port else {}))
        url = f"http://127.0.0.1:{port or self.port}/readyz"
        eventually(lambda: _is_ok(url), 30, f"{name} ready")

    def wait_for_workers(self, model: str, count: int, seconds: float = 120) -> None:
        eventually(lambda: self.workers(model) == count, seconds, f"{count} workers for {model}\n{self.tail()}")

    def workers(self, model: str) -> int:
        found: int = self.http.get(f"/v1/models/{model}").json()["workers"]
        return found

    def kill(self, name: str, number: int = signal.SIGKILL, seconds: float = 60) -> int:
        """Send a signal and wait for the end. The exit status."""
        process = self.processes.pop(name)
        process.send_signal(number)
        return process.wait(seconds)

    def stop(self) -> None:
        self.http.close()
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def tail(self) -> str:
        """The ends of all logs, for a failing test's message."""
        return "\n".join(
            f"== {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in self.logs.iterdir()
        )

    def submit(self, **body: Any) -> str:
        answer = self.http.post("/v1/jobs", json={"input": "Tell me a story.", **body})
        assert answer.status_code == 202, answer.text
        job_id: str = answer.json()["id"]
        return job_id

    def job(self, job_id: str, wait: float = 0) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(f"/v1/jobs/{job_id}", params={"wait": wait}).json()
        return found

    def ended(self, job_id: str, seconds: float = 60) -> dict[str, Any]:
        return eventually(
            lambda: (job := self.job(job_id, wait=5)) and job["finished_at"] and job, seconds, self.tail()
        )

    def follow(self, job_id: str) -> "Following":
        return Following(self, job_id)


class Following:
    """A strict follower on a WebSocket, on a thread of its own; connects again where it was when cut off."""

    def __init__(self, stack: Stack, job_id: str) -> None:
        self.seen = StrictFollower()
        self.error: Exception | None = None
        self.connections = 0
        self._stack, self._job_id = stack, job_id
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_over():
                self._follow_once()
        except Exception as error:
            self.error = error

    def _is_over(self) -> bool:
        return self.seen.events[-1:] != [] and self.seen.events[-1] not in {"job.queued", "job.in_progress"}

    def _follow_once(self) -> None:
        self.connections += 1
        url = f"{self._stack.url.replace('http', 'ws')}/v1/jobs/{self._job_id}/stream?after={self.seen.cursor}"
        headers = {"Authorization": f"Bearer {self._stack.key}"}
        try:
            with connect(url, additional_headers=headers, proxy=None) as socket:
                for message in socket:
                    self.seen.take(orjson.loads(message))
        except (ConnectionClosed, OSError):
            pass
        except InvalidStatus as refusal:
            # A server that stops, or whose database is away, sends followers elsewhere; here there is one.
            if refusal.response.status_code != 503:
                raise
            time.sleep(0.2)

    def ended(self, seconds: float = 120) -> StrictFollower:
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"still following at {self.seen.cursor}\n{self._stack.tail()}"
        if self.error:
            raise self.error
        return self.seen


@contextmanager
def running(environment: dict[str, str], key: str, logs: Path) -> Iterator[Stack]:
    stack = Stack(environment, key, logs)
    try:
        yield stack
    finally:
        stack.stop()


def _is_ok(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
