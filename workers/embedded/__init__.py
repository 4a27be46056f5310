"""Postgres and Valkey out of Python packages, for machines that have neither. `python -m workers.embedded
postgres|valkey` runs one in the foreground until it is told to stop; `running_postgres` and `running_valkey`
lend one to a test. It owns the servers' processes, settings and passwords, and must not know what is stored
in them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workers.embedded.postgres import Postgres
from workers.embedded.server import Server, ServerFailed, is_free
from workers.embedded.valkey import Valkey

__all__ = [
    "SERVERS",
    "Postgres",
    "Server",
    "ServerFailed",
    "Valkey",
    "is_free",
    "running_postgres",
    "running_valkey",
]

SERVERS: dict[str, type[Server]] = {kind.name: kind for kind in (Postgres, Valkey)}


@contextmanager
def running_postgres(folder: Path) -> Iterator[str]:
    """The URL of a Postgres with its data in `folder`, on a free port."""
    with Postgres(folder).running() as server:
        yield server.url


@contextmanager
def running_valkey(folder: Path) -> Iterator[str]:
    """The URL of a Valkey with its data in `folder`, on a free port."""
    with Valkey(folder).running() as server:
        yield server.url
