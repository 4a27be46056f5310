"""The end of a batch's validation, whichever way: its lines become jobs in one transaction, or it fails, or it
was only to be checked. Until then nothing is stored. Functions take the caller's session and never commit.
"""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, Final

import psycopg
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from app.batches import lifecycle
from app.batches.checking import Fault
from app.batches.errors import INVALID_LINES, BatchRejected
from app.batches.estimating import estimate, total
from app.batches.spooling import FAULT_COLUMNS, Spool
from app.batches.states import BatchStatus
from app.batches.tables import Batch
from app.ids import to_uuid
from app.jobs.states import Status
from config.catalogue import catalogue, currency

# COPY may take longer than a request's statement may, and the files are read in between.
_TAKE_TIME: Final = text("SET LOCAL statement_timeout = '15min'")
_TAKE_PAUSES: Final = text("SET LOCAL idle_in_transaction_session_timeout = '5min'")

# Of a batch's lines no webhook is made but at their end.
_EVENTS: Final = text("""
    INSERT INTO job_events (job_id, seq, first_seq, type, data)
    SELECT id, 1, 1, :type, '{"attempt": 0}' FROM jobs WHERE batch_id = :batch_id
""")


def enqueue(session: Session, batch_id: str, spool: Spool, price_factor: Decimal) -> Batch | None:
    """Its lines are jobs. None where it is not validating any more: roll back then. Another process that does
    the same at the same time fails on a line that is there (`IntegrityError`).
    """
    session.execute(_TAKE_TIME)
    session.execute(_TAKE_PAUSES)
    _copy(session, "jobs", spool.job_columns, spool.jobs())
    session.execute(_EVENTS, {"type": Status.QUEUED.event_type, "batch_id": to_uuid("batch", batch_id)})
    # The row is locked last: whoever cancels the batch does not wait for its lines to be written.
    return _advance(session, batch_id, BatchStatus.IN_PROGRESS, spool, _findings(spool, price_factor))


def finish_dry_run(session: Session, batch_id: str, spool: Spool, price_factor: Decimal) -> Batch | None:
    """As `enqueue`, but that nothing is run."""
    findings = {**_findings(spool, price_factor), "failed": spool.invalid}
    return _advance(session, batch_id, BatchStatus.COMPLETED, spool, findings)


def reject(
    session: Session, batch_id: str, spool: Spool, price_factor: Decimal, why: BatchRejected
) -> Batch | None:
    """It fails, with what is wrong with its lines or, where that is something else, with the file."""
    if why.code != INVALID_LINES:
        spool.add_fault(Fault(0, why.code, str(why), why.param))
    findings = {
        **_findings(spool, price_factor),
        "failed": spool.invalid,
        "error_code": why.code,
        "error_message": str(why),
    }
    return _advance(session, batch_id, BatchStatus.FAILED, spool, findings)


def _advance(
    session: Session, batch_id: str, target: BatchStatus, spool: Spool, findings: dict[str, Any]
) -> Batch | None:
    _copy(session, "batch_faults", FAULT_COLUMNS, spool.faults())
    data: dict[str, Any] = {"request_counts": {"total": spool.lines, "completed": 0, "failed": spool.invalid}}
    if target is BatchStatus.FAILED:
        data["error"] = {"code": findings["error_code"], "message": findings["error_message"]}
    return lifecycle.advance(session, batch_id, {BatchStatus.VALIDATING}, target, findings, data)


def _findings(spool: Spool, price_factor: Decimal) -> dict[str, Any]:
    whole = total(spool.loads)
    prices = {model: catalogue()[model].price for model in spool.loads}
    return {
        "total": spool.lines,
        "invalid": spool.invalid,
        "model": next(iter(spool.loads)) if len(spool.loads) == 1 else None,
        "prompt_tokens": whole.prompt_tokens,
        "reserved_tokens": whole.reserved_tokens,
        "estimate": estimate(spool.loads, spool.invalid, prices, price_factor, currency()),
    }


def _copy(session: Session, table: str, columns: Iterable[str], rows: Iterator[bytes]) -> None:
    """In this session's transaction. The driver does it: SQLAlchemy knows no COPY, nor wraps its errors."""
    names = ", ".join(f'"{name}"' for name in columns)
    command = f"COPY {table} ({names}) FROM STDIN"
    connection: Any = session.connection().connection.driver_connection
    try:
        with connection.cursor() as cursor, cursor.copy(command) as copy:
            for chunk in rows:
                copy.write(chunk)
    except psycopg.Error as error:
        raise DBAPIError.instance(command, None, error, psycopg.Error) from error
