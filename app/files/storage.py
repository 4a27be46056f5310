"""Where contents are: a folder of this machine, or whatever `fsspec` reaches (`s3://bucket/path`), each under
its digest. It knows no file's name or owner, and never holds a content in memory.
"""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import fsspec

from config.settings import settings

CHUNK_BYTES: Final = 1 << 18


class Storage:
    """Safe from any thread."""

    def __init__(self, url: str) -> None:
        self._fs, self._root = fsspec.core.url_to_fs(url)

    def put(self, digest: str, local: Path) -> None:
        """Take over a local file's content. What is there already is the same."""
        path = self._path(digest)
        if self._fs.exists(path):
            return
        self._fs.makedirs(self._fs._parent(path), exist_ok=True)  # noqa: SLF001 - fsspec has no other name for it
        if self._is_local:
            # Another name first: nobody may find half a content.
            partial = f"{path}.{local.name}"
            shutil.copyfile(local, partial)
            Path(partial).replace(path)
        else:
            self._fs.put_file(str(local), path)

    def read(self, digest: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` to before `end`, in chunks. Raises `FileNotFoundError`."""
        with self._fs.open(self._path(digest), "rb", block_size=CHUNK_BYTES) as content:
            content.seek(start)
            left = None if end is None else end - start
            while left is None or left > 0:
                chunk = content.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left))
                if not chunk:
                    return
                left = None if left is None else left - len(chunk)
                yield chunk

    def open(self, digest: str) -> Any:
        """The content as a binary file, to be closed. Raises `FileNotFoundError`."""
        return self._fs.open(self._path(digest), "rb", block_size=CHUNK_BYTES)

    def delete(self, digest: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm_file(self._path(digest))

    @property
    def _is_local(self) -> bool:
        return "file" in self._fs.protocol

    def _path(self, digest: str) -> str:
        return f"{self._root}/{digest[:2]}/{digest}"


@cache
def storage() -> Storage:
    """That of this installation."""
    return Storage(settings().file_storage or str(settings().var_dir / "files"))
