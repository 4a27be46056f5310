"""Contents in a folder that every web and background process reaches: a `Storage`."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

CHUNK_BYTES: Final = 1 << 18


class Folder:
    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, digest: str, local: Path) -> None:
        path = self._path(digest)
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        # Under another name first: nobody may find half a content.
        partial = path.with_name(f"{digest}.{local.name}")
        try:
            shutil.copyfile(local, partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    def read(self, digest: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        with self._path(digest).open("rb") as content:
            content.seek(start)
            left = None if end is None else end - start
            while chunk := content.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left)):
                left = None if left is None else left - len(chunk)
                yield chunk

    def delete(self, digest: str) -> None:
        self._path(digest).unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        return self._root / digest[:2] / digest
