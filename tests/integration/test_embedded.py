"""The embedded servers, run as the supervisor runs them: in the foreground, in a process of their own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from config.settings import process_environment
from workers.embedded import Postgres, Server, Valkey


def count_postgres(server: Server) -> int:
    with closing(psycopg.connect(server.url.replace("+psycopg", ""))) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS visits (n int)")
        connection.execute("INSERT INTO visits VALUES (1)")
        count = connection.execute("SELECT count(*) FROM visits").fetchone()[0]
        connection.commit()
    return count


def count_valkey(server: Server) -> int:
    with redis.Redis.from_url(server.url) as client:
        return client.incr("visits")


KINDS = [pytest.param(Postgres, count_postgres, id="postgres"), pytest.param(Valkey, count_valkey, id="valkey")]


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def find_processes(server: Server) -> list[psutil.Process]:
    """The server processes that work in this folder, whoever started them."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.name() == server.process_name and process.cwd() == str(server.pid_file.parent):
                found.append(process)
        except psutil.Error:
            continue
    return found


@contextmanager
def foreground(server: Server, var_dir: Path) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "workers.embedded", server.name],
        env=process_environment(LONGHAUL_VAR_DIR=str(var_dir)),
    )
    try:
        wait_for(lambda: process.poll() is not None or server.is_ready())
        yield process
    finally:
        process.kill()
        process.wait()
        wait_for(lambda: not find_processes(server))


@pytest.mark.parametrize(("kind", "count"), KINDS)
def test_data_survives_a_restart_on_the_same_address(kind, count, tmp_path):
    urls = []
    for visit in (1, 2, 3):
        with kind(tmp_path / "data").running() as server:
            urls.append(server.url)
            assert count(server) == visit
    assert len(set(urls)) == 1


@pytest.mark.parametrize(("kind", "count"), KINDS)
def test_sigterm_stops_the_server_and_exits_with_zero(kind, count, tmp_path):
    server = kind(tmp_path / kind.name)
    with foreground(server, tmp_path) as process:
        count(server)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert find_processes(server) == []


@pytest.mark.parametrize(("kind", "count"), KINDS)
def test_the_foreground_process_ends_when_its_server_dies(kind, count, tmp_path):
    server = kind(tmp_path / kind.name)
    with foreground(server, tmp_path) as process:
        os.kill(int(server.pid_file.read_text().split()[0]), signal.SIGKILL)
        assert process.wait(30) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's parent-death signal")
@pytest.mark.parametrize(("kind", "count"), KINDS)
def test_a_killed_foreground_process_leaves_no_server(kind, count, tmp_path):
    server = kind(tmp_path / kind.name)
    with foreground(server, tmp_path) as process:
        count(server)
        process.kill()
        process.wait()
        wait_for(lambda: not find_processes(server))
    with server.running():
        assert count(server) == 2


@pytest.mark.parametrize(("kind", "count"), KINDS)
def test_a_start_takes_over_from_a_server_that_still_runs(kind, count, tmp_path):
    with kind(tmp_path / "data").running() as older:
        count(older)
        with kind(tmp_path / "data").running() as newer:
            assert count(newer) == 2
            assert older.wait() == 0


@pytest.mark.parametrize(("kind", "count"), KINDS)
def test_a_pid_file_that_names_somebody_else_is_no_obstacle(kind, count, tmp_path):
    with kind(tmp_path / "data").running() as server:
        written = server.pid_file.read_text()
    _, *rest = written.split(maxsplit=1)
    server.pid_file.write_text("\n".join([str(os.getpid()), *rest]))
    with server.running():
        assert count(server) == 1


def test_postgres_has_the_database_and_keeps_what_it_acknowledges(tmp_path):
    with (
        Postgres(tmp_path / "data").running() as server,
        closing(psycopg.connect(server.url.replace("+psycopg", ""))) as connection,
    ):
        shown = connection.execute(
            "SELECT current_database(), current_setting('synchronous_commit'), current_setting('fsync')"
        ).fetchone()
    assert shown == ("longhaul", "on", "on")


def test_valkey_persists_and_never_evicts(tmp_path):
    with Valkey(tmp_path / "data").running() as server, redis.Redis.from_url(server.url) as client:
        assert client.config_get("appendonly") == {"appendonly": "yes"}
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_neither_server_lets_a_stranger_in(tmp_path):
    with Postgres(tmp_path / "postgres").running() as postgres, pytest.raises(psycopg.OperationalError):
        psycopg.connect(host="127.0.0.1", port=postgres.port, user="postgres", password="guess")
    with (
        Valkey(tmp_path / "valkey").running() as valkey,
        redis.Redis(port=valkey.port) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()


@pytest.mark.parametrize(("kind", "count"), KINDS)
def test_the_password_is_readable_by_its_owner_alone(kind, count, tmp_path):
    kind(tmp_path / "data")
    assert (tmp_path / "data" / "password").stat().st_mode & 0o077 == 0
