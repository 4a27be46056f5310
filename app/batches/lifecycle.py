"""The one function that changes a batch's status, and its log. A change and its event are one transaction; who
comes too late gets None. Functions take the caller's session and never commit.
"""

from collections.abc import Collection
from typing import Any, Final

import orjson
from sqlalchemy import ARRAY, Text, bindparam, func, select, text, update
from sqlalchemy.orm import Session

from app.batches.states import PROGRESS, TERMINAL_BATCHES, BatchStatus
from app.batches.tables import Batch
from app.ids import PrefixedId

# When a status was reached, for those that OpenAI dates; the terminal ones share `finished_at`.
_DATED: Final = {
    BatchStatus.IN_PROGRESS: Batch.in_progress_at,
    BatchStatus.CANCELLING: Batch.cancelling_at,
    BatchStatus.FINALIZING: Batch.finalizing_at,
}
_TERMINAL_TYPES: Final = sorted(status.event_type for status in TERMINAL_BATCHES)


def advance(
    session: Session,
    batch_id: str,
    sources: Collection[BatchStatus],
    target: BatchStatus,
    values: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
) -> Batch | None:
    """Move a batch from one of `sources`, with its event. None where it is in none of them."""
    changes = {getattr(Batch, name): value for name, value in (values or {}).items()}
    if target in _DATED:
        changes[_DATED[target]] = func.coalesce(_DATED[target], func.now())
    if target.is_terminal:
        changes[Batch.finished_at] = func.now()
    batch = session.scalar(
        update(Batch)
        .where(Batch.id == batch_id, Batch.status.in_(sources))
        .values({Batch.status: target, **changes})
        .returning(Batch)
        .execution_options(populate_existing=True, synchronize_session=False)
    )
    if batch is not None:
        append_event(session, batch_id, target.event_type, data or {})
    return batch


def note_progress(session: Session, batch_id: str, data: dict[str, Any]) -> int:
    """Write how far a batch is. Returns the event's number."""
    return append_event(session, batch_id, PROGRESS, data)


_APPEND = text("""
    INSERT INTO batch_events (batch_id, seq, type, data, is_due)
    SELECT batch.id, 1 + coalesce((SELECT max(seq) FROM batch_events WHERE batch_id = :batch_id), 0), :type,
        CAST(:data AS jsonb),
        NOT batch.dry_run AND (:type = ANY(accounts.listens_to)
            OR batch.webhook_url IS NOT NULL AND :type = ANY(:terminal_types))
    FROM batches batch JOIN accounts ON accounts.id = batch.account_id WHERE batch.id = :batch_id
    RETURNING seq
""").bindparams(
    bindparam("batch_id", type_=PrefixedId("batch")),
    bindparam("type", type_=Text),
    bindparam("data", type_=Text),
    bindparam("terminal_types", _TERMINAL_TYPES, type_=ARRAY(Text)),
)


def append_event(session: Session, batch_id: str, event_type: str, data: dict[str, Any]) -> int:
    """Write the next event of a batch. Returns its number."""
    # In a statement of its own: one that waits for the row would still count the events of before.
    session.execute(select(Batch.id).where(Batch.id == batch_id).with_for_update())
    values = {"batch_id": batch_id, "type": event_type, "data": orjson.dumps(data).decode()}
    return int(session.connection().execute(_APPEND, values).scalar_one())
