"""The commands for the database, and the way in which others open it. It owns what a database that is away or
not migrated looks like to a person, and must not know what is stored.
"""
# ruff: noqa: PLC0415 - `longhaul --help` starts faster without what only a running command needs

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from app.cli.errors import CommandFailed

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

app = typer.Typer(help="The database.", no_args_is_help=True)


@app.callback()
def database() -> None:
    """The database."""


@app.command()
def upgrade() -> None:
    """Bring the tables up to date; does nothing where they are."""
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    from config.settings import ROOT

    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations").replace("%", "%%"))
    with plain_failures():
        command.upgrade(config, "head")
    typer.echo(f"The database is at revision {ScriptDirectory.from_config(config).get_current_head()}.")


@contextmanager
def opened() -> "Iterator[Session]":
    """A transaction."""
    from app.db import transaction

    with plain_failures(), transaction() as session:
        yield session


@contextmanager
def plain_failures() -> Iterator[None]:
    """What is wrong with the database, as `CommandFailed`."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError, OperationalError, ProgrammingError

    from config.settings import settings

    if not (url := settings().database_url):
        raise CommandFailed(
            "No database is known here: start one with `longhaul up`, or set DATABASE_URL to one that runs."
        )
    try:
        yield
    except ArgumentError:
        raise CommandFailed("DATABASE_URL is not the address of a Postgres database.") from None
    except OperationalError as error:
        where = make_url(url).set(password=None).render_as_string()
        raise CommandFailed(f"The database at {where} cannot be used: {str(error.orig).strip()}") from None
    except ProgrammingError as error:
        if getattr(error.orig, "sqlstate", None) != "42P01":  # undefined_table
            raise
        raise CommandFailed("The database has no tables yet: `longhaul db upgrade` makes them.") from None
