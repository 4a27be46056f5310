"""The database: one engine a process, and `transaction()`, which only the edges open. No transaction stays
open while a model or another server works. It knows no table.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.orm import DeclarativeBase, Session, sessionmaker

from app import clock
from config.settings import settings


class Base(DeclarativeBase):
    pass


def sqlalchemy_url(url: str) -> str:
    """`postgres://` and `postgresql://` as hosting services write them, with our driver named."""
    scheme, separator, rest = url.partition("://")
    return f"postgresql+psycopg://{rest}" if separator and scheme in {"postgres", "postgresql"} else url


@cache
def engine() -> Engine:
    """The process's engine, made at first use, hence after a fork."""
    made = create_engine(
        sqlalchemy_url(settings().database_url),
        pool_size=settings().pool_size,
        max_overflow=0,
        pool_timeout=10,
        connect_args={
            "connect_timeout": 5,
            "options": "-c statement_timeout=30s -c idle_in_transaction_session_timeout=30s -c timezone=UTC",
        },
    )
    event.listen(made, "checkin", _note_return)
    event.listen(made, "checkout", _ping_if_idle)
    return made


# SQLAlchemy's own pre-ping asks before every transaction, which doubles a short one's round trips. A connection
# that was in use a moment ago is taken at its word: if it broke since, one transaction fails and the whole
# pool is made anew.
TRUSTED_SECONDS = 2.0


def _note_return(_connection: Any, record: Any) -> None:
    record.info["returned_at"] = clock.monotonic()


def _ping_if_idle(connection: Any, record: Any, _proxy: Any) -> None:
    if clock.monotonic() - record.info.get("returned_at", clock.monotonic()) < TRUSTED_SECONDS:
        return
    try:
        alive = engine().dialect.do_ping(connection)
    except Exception as error:
        raise DisconnectionError from error
    if not alive:
        raise DisconnectionError


@cache
def _sessions() -> sessionmaker[Session]:
    return sessionmaker(engine(), expire_on_commit=False)


@contextmanager
def transaction() -> Iterator[Session]:
    """A session that commits at the end, or rolls back on an exception."""
    with _sessions().begin() as session:
        yield session


def call_after_commit(session: Session, call: Callable[[], Any]) -> None:
    """Run `call` once `session` has committed, and never if it rolls back."""
    event.listen(session, "after_commit", lambda _: call(), once=True)
