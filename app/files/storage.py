"""Where contents are, each under its digest: what a folder and a bucket share, and which of the two it is. It
knows no file's name or owner.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Protocol

from app.files.folder import Folder
from config.settings import settings


class Storage(Protocol):
    """Safe from any thread; never holds a content in memory."""

    def put(self, digest: str, local: Path) -> None:
        """Copy a local file's content. What is there already is the same."""

    def read(self, digest: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` to before `end`, in chunks. Raises `FileNotFoundError`."""

    def delete(self, digest: str) -> None:
        """Also where there is none."""


@cache
def storage() -> Storage:
    """That of this installation."""
    chosen = settings()
    if chosen.file_bucket:
        from app.files.bucket import Bucket, connect  # noqa: PLC0415 - its library is an extra

        return Bucket(
            connect(chosen.file_endpoint_url, chosen.file_region), chosen.file_bucket, chosen.file_prefix
        )
    return Folder(chosen.file_folder or chosen.var_dir / "files")
