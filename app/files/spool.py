"""A content on its way in: written to a temporary file of this machine, hashed and counted while it comes."""

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Self

from app import clock
from app.files.errors import FileTooLarge
from config.settings import settings


class Spool:
    """A file to write to. As a context, so that nothing is left behind."""

    def __init__(self, limit: int) -> None:
        descriptor, name = tempfile.mkstemp(dir=spool_folder())
        self._file = os.fdopen(descriptor, "wb")
        self._hash = hashlib.sha256()
        self._limit = limit
        self.path = Path(name)
        self.bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)

    def write(self, data: bytes) -> int:
        """Raises `FileTooLarge`."""
        self.bytes += len(data)
        if self.bytes > self._limit:
            raise FileTooLarge(self._limit)
        self._hash.update(data)
        return self._file.write(data)

    def finish(self) -> str:
        """All of it is written: its digest."""
        self._file.flush()
        return self._hash.hexdigest()


def drop_leftovers() -> None:
    """Drop what processes of this machine left when they were killed. What is being written is younger."""
    before = clock.now().timestamp() - settings().blob_grace_seconds
    for path in spool_folder().glob("*"):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < before:
                path.unlink()


def spool_folder() -> Path:
    """Where this machine writes what is on its way."""
    folder = settings().var_dir / "uploads"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
