"""The end of a batch whose lines have all ended: its files are written, then one transaction keeps them with
its counts. Killed anywhere in between, it is done again, to the same files.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.batches import counting, lifecycle, results
from app.batches.progress import standing
from app.batches.states import BatchStatus
from app.batches.tables import Batch
from app.db import transaction
from app.files import shelf
from app.files.spool import Spool
from app.files.storage import storage
from app.files.tables import Purpose

# From these it goes to its end: nothing of it runs.
_ENDING: Final = frozenset({BatchStatus.FINALIZING, BatchStatus.CANCELLING})


def begin(session: Session, batch_id: str) -> Batch | None:
    """Call when no line of a batch is left to run."""
    return lifecycle.advance(session, batch_id, {BatchStatus.IN_PROGRESS}, BatchStatus.FINALIZING)


def finalize(batch: Batch) -> Batch | None:
    """The ended batch; None where another was faster. Raises `OSError` where its files cannot be written."""
    with (
        _written(batch, "output", results.output_lines) as output,
        _written(batch, "errors", results.error_lines) as errors,
        transaction() as session,
    ):
        return _end(session, batch.id, output, errors)


@contextmanager
def _written(
    batch: Batch, name: str, lines: Callable[[Batch], Iterable[bytes]]
) -> Iterator[shelf.Draft | None]:
    """A stored content that is no file yet; none where it would be empty."""
    with Spool(sys.maxsize) as spool:
        for line in lines(batch):
            spool.write(line)
        digest = spool.finish()
        if spool.bytes:
            with transaction() as session:
                shelf.begin(session, digest, spool.bytes)
            storage().put(digest, spool.path)
    yield (
        shelf.Draft(
            account_id=batch.account_id,
            digest=digest,
            bytes=spool.bytes,
            filename=f"{batch.id}_{name}.jsonl",
            purpose=Purpose.BATCH_OUTPUT,
            expires_after_seconds=batch.output_expires_after_seconds,
        )
        if spool.bytes
        else None
    )


def _end(
    session: Session, batch_id: str, output: shelf.Draft | None, errors: shelf.Draft | None
) -> Batch | None:
    batch = session.scalar(
        select(Batch).where(Batch.id == batch_id, Batch.status.in_(_ENDING)).with_for_update()
    )
    if batch is None:
        return None
    files = {
        "output_file_id": output and shelf.keep(session, output).id,
        "error_file_id": errors and shelf.keep(session, errors).id,
    }
    counts = counting.count(session, [batch])[batch_id]
    kept = {**files, **_kept(session, batch_id, counts)}
    return lifecycle.advance(session, batch_id, _ENDING, _verdict(session, batch), kept, standing(counts))


def _verdict(session: Session, batch: Batch) -> BatchStatus:
    if batch.cancelling_at is not None:
        return BatchStatus.CANCELLED
    return BatchStatus.EXPIRED if counting.any_late(session, batch.id) else BatchStatus.COMPLETED


def _kept(session: Session, batch_id: str, counts: counting.Counts) -> dict[str, Any]:
    return {
        "total": counts.total,
        "completed": counts.completed,
        "failed": counts.failed,
        "input_tokens": counts.input_tokens,
        "cached_tokens": counts.cached_tokens,
        "output_tokens": counts.output_tokens,
        "reasoning_tokens": counting.reasoning_tokens(session, batch_id),
        "cost": counts.cost,
    }
