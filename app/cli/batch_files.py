"""Files of batches between this machine and the API, of any size: read, sent and written in pieces. It must not
know what their lines mean, but for the `url` of the first.
"""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import orjson
from rich import progress
from rich.console import Console

from app.cli.client import Api
from app.cli.errors import CommandFailed

USUAL_ENDPOINT: Final = "/v1/chat/completions"
FIRST_LINE_BYTES: Final = 4_000_000


def endpoint_of(file: Path) -> str:
    """What the file's first line is for. Where it does not say, the check of the lines will."""
    with _readable(file), file.open("rb") as opened:
        first = opened.readline(FIRST_LINE_BYTES)
    try:
        found = orjson.loads(first.removeprefix(b"\xef\xbb\xbf"))["url"]
    except (ValueError, TypeError, KeyError):
        return USUAL_ENDPOINT
    return found if isinstance(found, str) and found else USUAL_ENDPOINT


def upload(api: Api, file: Path, seconds: int | None = None) -> dict[str, Any]:
    """Store it for a batch; for `seconds`, else as long as the API keeps such files."""
    console = Console(stderr=True)
    is_hidden = not console.is_terminal
    lifetime = {}
    if seconds is not None:
        lifetime = {"expires_after[anchor]": "created_at", "expires_after[seconds]": str(seconds)}
    with (
        _readable(file),
        progress.open(
            file, "rb", description="Uploading", console=console, transient=True, disable=is_hidden
        ) as opened,
    ):
        return api.upload(opened, file.name, purpose="batch", **lifetime)


def save(pieces: Iterator[bytes], to: Path | None) -> None:
    """Write them to a file, which is whole or as it was; or to standard output."""
    if to is None:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    part = to.with_name(f"{to.name}.part")
    try:
        with part.open("wb") as opened:
            opened.writelines(pieces)
        shutil.move(part, to)
    except OSError as error:
        raise CommandFailed(f"{to} cannot be written: {error.strerror}.") from None
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CommandFailed(f"{file} cannot be read: {error.strerror}.") from None
