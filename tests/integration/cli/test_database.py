"""`longhaul keys` and `longhaul db` on a real Postgres."""

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from app.db import engine, sqlalchemy_url
from app.ids import new_id
from app.tables import metadata

LONGHAUL = Path(sys.executable).parent / "longhaul"


@pytest.fixture
def longhaul(clean, tmp_path):
    """`longhaul(*args)` runs the command in a folder that is not the repository's."""

    def run(*args, **environment):
        return subprocess.run(
            [LONGHAUL, *args],
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", **clean, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def empty_database(clean):
    """The address of a database without tables."""
    address, name = clean["DATABASE_URL"], new_id("t")
    plain = sqlalchemy_url(address).replace("+psycopg", "", 1)
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield engine().url.set(database=name).render_as_string(hide_password=False)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_secret_alone_goes_to_standard_output_and_is_never_listed(longhaul):
    made = longhaul("keys", "create", "laptop", "--account", "acme")
    secret = made.stdout.removesuffix("\n")
    assert secret.startswith("lh-")
    assert secret not in made.stderr
    header, row = longhaul("keys", "list").stdout.splitlines()
    assert header.split("\t") == ["id", "account", "name", "ends in", "created", "revoked"]
    assert row.split("\t")[1:4] == ["acme", "laptop", secret[-4:]]
    assert secret not in row


def test_two_keys_of_one_account_make_one_account(longhaul):
    for name in ("first", "second"):
        assert longhaul("keys", "create", name, "--account", "acme").returncode == 0
    with engine().connect() as connection:
        names = connection.exec_driver_sql("SELECT name FROM accounts").scalars().all()
    assert names == ["acme"]


def test_a_revoked_key_shows_since_when(longhaul):
    longhaul("keys", "create", "laptop")
    key_id = longhaul("keys", "list").stdout.splitlines()[1].split("\t")[0]
    assert key_id in longhaul("keys", "revoke", key_id).stdout
    assert longhaul("keys", "list").stdout.splitlines()[1].split("\t")[-1] != "-"
    assert longhaul("keys", "revoke", key_id).returncode == 0


@pytest.mark.parametrize("key_id", ["nonsense", "key_" + "0" * 32])
def test_revoking_what_is_no_key_fails(longhaul, key_id):
    ran = longhaul("keys", "revoke", key_id)
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert key_id in ran.stderr


def test_an_empty_database_is_upgraded_from_any_folder_and_once_only(longhaul, empty_database):
    before = longhaul("keys", "list", DATABASE_URL=empty_database)
    assert "longhaul db upgrade" in before.stderr
    assert (before.returncode, "Traceback" in before.stderr) == (1, False)
    for _ in range(2):
        ran = longhaul("db", "upgrade", DATABASE_URL=empty_database)
        assert ran.returncode == 0, ran.stderr
    assert longhaul("keys", "list", DATABASE_URL=empty_database).returncode == 0


def test_a_database_that_is_away_is_said_without_its_password(longhaul):
    ran = longhaul("keys", "list", DATABASE_URL="postgresql://someone:hunter2@127.0.0.1:9/x")
    assert ran.returncode == 1
    assert "127.0.0.1:9" in ran.stderr
    assert "hunter2" not in ran.stderr
    assert "Traceback" not in ran.stderr


def test_migrations_make_the_tables_that_the_code_declares(clean):
    with engine().connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
