"""Rows on their way into the database: written to temporary files in the form that COPY reads, so that any
number of lines takes the same memory. The files have no name: a process that is killed leaves nothing behind.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

import orjson

from app.batches.checking import Checked, Fault
from app.batches.estimating import Load
from app.batches.tables import Batch
from app.files.spool import spool_folder
from app.ids import to_uuid
from app.jobs.states import Status
from app.jobs.submission import Draft
from config.queues import Tier, Window

CHUNK_BYTES: Final = 1 << 18
_NULL: Final = b"\\N"

# First those that a batch's lines share.
JOB_COLUMNS: Final = (
    "batch_id", "account_id", "key_id", "tier", "status", "completion_window", "price_factor",
    "due_at", "expires_at", "order_at",
    "id", "line", "custom_id", "kind", "model", "request", "metadata", "request_hash", "surface", "echo",
    "is_stored", "session_id", "webhook_url", "prompt_tokens", "reserved_tokens", "is_long",
)  # fmt: skip
# Without a window's end a job stands where it came.
_UNORDERED: Final = tuple(name for name in JOB_COLUMNS if name != "order_at")
FAULT_COLUMNS: Final = ("batch_id", "line", "column", "custom_id", "code", "message", "param")


class Spool:
    """The rows of a batch, and what they come to."""

    def __init__(self, batch: Batch) -> None:
        folder = spool_folder()
        self._files = ExitStack()
        self._jobs, self._faults = (self._files.enter_context(_unnamed(folder)) for _ in range(2))
        self._batch_id = to_uuid("batch", batch.id).hex.encode()
        self._shared = _shared(batch, self._batch_id)
        self.job_columns = _UNORDERED if batch.completion_window is Window.SOONEST else JOB_COLUMNS
        self.invalid = 0
        self.loads: dict[str, Load] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._files.close()

    @property
    def lines(self) -> int:
        return self.invalid + sum(load.jobs for load in self.loads.values())

    def add(self, checked: Checked) -> None:
        draft = checked.draft
        self._jobs.write(b"\t".join((self._shared, *_own(checked))) + b"\n")
        if draft.model not in self.loads:
            self.loads[draft.model] = Load()
        self.loads[draft.model].add(draft.prompt_tokens, draft.reserved_tokens)

    def add_fault(self, fault: Fault) -> None:
        values = (fault.line, fault.column, fault.custom_id, fault.code, fault.message, fault.param)
        row = (self._batch_id, *(_text(None if value is None else str(value)) for value in values))
        self._faults.write(b"\t".join(row) + b"\n")
        self.invalid += fault.line > 0

    def jobs(self) -> Iterator[bytes]:
        return _chunks(self._jobs)

    def faults(self) -> Iterator[bytes]:
        return _chunks(self._faults)


def _unnamed(folder: Path) -> IO[bytes]:
    return tempfile.TemporaryFile(dir=folder, buffering=CHUNK_BYTES)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def _shared(batch: Batch, batch_id: bytes) -> bytes:
    due = [] if batch.expires_at is None else [batch.expires_at.isoformat().encode()] * 3
    values = (
        batch_id,
        to_uuid("acct", batch.account_id).hex.encode(),
        _NULL if batch.key_id is None else to_uuid("key", batch.key_id).hex.encode(),
        Tier.BATCH.value.encode(),
        Status.QUEUED.value.encode(),
        batch.completion_window.value.encode(),
        str(batch.price_factor).encode(),
        *(due or [_NULL, _NULL]),
    )
    return b"\t".join(values)


def _own(checked: Checked) -> tuple[bytes, ...]:
    draft: Draft = checked.draft
    return (
        draft.job_id.removeprefix("job_").encode(),
        b"%d" % checked.line,
        _text(checked.custom_id),
        _word(draft.kind),
        _word(draft.model),
        _json(draft.request),
        _json(draft.metadata) if draft.metadata else b"{}",
        b"\\\\x" + draft.request_hash.hex().encode(),
        draft.spoken.surface.value.encode(),
        _NULL if draft.spoken.echo is None else _json(draft.spoken.echo),
        b"t" if draft.spoken.is_stored else b"f",
        _text(draft.session_id),
        _text(draft.webhook_url),
        b"%d" % draft.prompt_tokens,
        b"%d" % draft.reserved_tokens,
        b"t" if draft.is_long else b"f",
    )


def _json(value: Any) -> bytes:
    """JSON has no control characters; only a backslash means something to COPY."""
    return orjson.dumps(value).replace(b"\\", b"\\\\")


@lru_cache(256)
def _word(value: str) -> bytes:
    """A text that most lines share."""
    return _text(value)


def _text(value: str | None) -> bytes:
    if value is None:
        return _NULL
    written = value.encode()
    escaped = written.replace(b"\\", b"\\\\").replace(b"\t", b"\\t")
    return escaped.replace(b"\n", b"\\n").replace(b"\r", b"\\r")
