"""Identifiers: UUIDv7 (RFC 9562) inside, a prefix and 32 hexadecimal digits outside, so that an id says what
it names and sorts by creation time. Knowing an id never authorises anything.
"""

import uuid
from datetime import datetime
from typing import Any

import uuid_utils
from sqlalchemy import Dialect
from sqlalchemy.dialects.postgresql import UUID
from sqlalchemy.types import TypeDecorator


def new_id(prefix: str) -> str:
    return f"{prefix}_{uuid_utils.uuid7().hex}"


def earliest_id(prefix: str, at: datetime) -> str:
    """The smallest id that could have been made at `at`, for ranges over time without an index of its own."""
    return f"{prefix}_{int(at.timestamp() * 1000):012x}{'0' * 20}"


def to_uuid(prefix: str, value: str) -> uuid.UUID:
    """Raises `ValueError` unless `value` is an id with this prefix, spelled exactly as we spell it."""
    found = uuid.UUID(hex=value.removeprefix(f"{prefix}_"))
    if value != f"{prefix}_{found.hex}":
        raise ValueError(f"not a {prefix} id: {value!r}")
    return found


def is_id(prefix: str, value: str) -> bool:
    try:
        to_uuid(prefix, value)
    except ValueError:
        return False
    return True


class PrefixedId(TypeDecorator[str]):
    """A `uuid` column that Python code sees as the public id."""

    impl = UUID(as_uuid=True)
    cache_ok = True

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self.prefix = prefix

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002 - SQLAlchemy's signature
        return None if value is None else to_uuid(self.prefix, value)

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002 - as above
        return None if value is None else f"{self.prefix}_{value.hex}"
