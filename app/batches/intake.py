"""Validating batches, one after the other: lines are read, checked and spooled, the gate is asked for all of
them at once, and then they become jobs or the batch fails. A process that dies on the way has done nothing. A
batch that finds its line full is parked, checked as it is, and comes again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog
from psycopg.errors import UniqueViolation
from sqlalchemy.exc import IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from app import clock
from app.accounts.limits import Caller, limits_of
from app.accounts.tables import Account, ApiKey
from app.batches import creating, enqueuing, joining, reading
from app.batches.checking import Checked, Checker
from app.batches.errors import INVALID_LINES, BatchRejected
from app.batches.spooling import Spool
from app.batches.states import BatchStatus, OnInvalid
from app.batches.tables import Batch
from app.db import transaction
from app.files.storage import storage
from app.gate.admission import BulkEntry
from app.gate.errors import AccountFull, LineFull, Refused
from app.jobs.errors import JobError
from app.webhooks import secrets
from app.webhooks.errors import SecretMissing
from config.queues import Tier
from config.settings import settings

log = structlog.get_logger(__name__)

PARKED_SECONDS: Final = 3.0  # until the gate is asked again
AGAIN_SECONDS: Final = 10.0  # after something went wrong with a batch
MAX_PARKED: Final = 50  # each holds two open files; of more, lines are checked anew

DATABASE_AWAY: Final = (OperationalError, InterfaceError, PoolTimeout)

Outcome = Callable[[Session], Batch | None]


class Stopped(Exception):
    """This process ends before the lines do."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch whose lines are checked. `rejected` is why it cannot run, whatever the gate says."""

    batch: Batch
    caller: Caller
    spool: Spool
    rejected: BatchRejected | None


class _LineFull(Exception):
    """It may pass later."""


class Late(Exception):
    """Another was faster, or the batch was cancelled."""


class Intake:
    """Of one process, in one thread. `is_stopping` is asked at every line."""

    def __init__(self, is_stopping: Callable[[], bool] = lambda: False) -> None:
        self._is_stopping = is_stopping
        self._parked: dict[str, Prepared] = {}
        self._retry_at: dict[str, float] = {}
        self._served_at: dict[str, float] = {}  # by account: they take turns

    def close(self) -> None:
        for prepared in self._parked.values():
            prepared.spool.close()
        self._parked.clear()

    def round(self) -> bool:
        """Validate the next batch. Whether there was one. Raises `DATABASE_AWAY`."""
        now = clock.monotonic()
        waiting = [batch_id for batch_id, at in self._retry_at.items() if at > now]
        with transaction() as session:
            found = creating.next_validating(session, waiting, self._served_at)
        if found is None:
            return False
        batch_id, account_id = found
        self._served_at[account_id] = now
        self._retry_at.pop(batch_id, None)
        try:
            self.run(batch_id)
        except DATABASE_AWAY:
            raise
        except Exception:
            # What goes wrong with one holds up no other.
            log.exception("batch.stuck", batch_id=batch_id)
            self._retry_at[batch_id] = clock.monotonic() + AGAIN_SECONDS
        return True

    def run(self, batch_id: str) -> None:
        """Validate one batch, or go on with it where it was parked."""
        prepared = self._parked.pop(batch_id, None) or prepare(batch_id, self._is_stopping)
        if prepared is None:
            return
        is_parked = False
        try:
            is_parked = self._conclude(prepared)
        finally:
            if not is_parked:
                prepared.spool.close()

    def _conclude(self, prepared: Prepared) -> bool:
        """Whether it was parked."""
        batch_id = prepared.batch.id
        try:
            conclude(prepared)
        except _LineFull as error:
            log.info("batch.waits", batch_id=batch_id, why=str(error))
            self._retry_at[batch_id] = clock.monotonic() + PARKED_SECONDS
            if len(self._parked) < MAX_PARKED:
                self._parked[batch_id] = prepared
                return True
        except Late:
            log.info("batch.validated_in_vain", batch_id=batch_id)
        return False


def prepare(batch_id: str, is_stopping: Callable[[], bool]) -> Prepared | None:
    """Check the lines of a batch. None where it is not validating any more, or this process stops."""
    with transaction() as session:
        batch = session.get(Batch, batch_id)
        if batch is None or batch.status is not BatchStatus.VALIDATING:
            return None
        caller = _caller(session, batch)
        checker = Checker(
            batch.endpoint, batch.completion_window, caller, _callbacks_refused(session, batch.account_id)
        )
        creating.hold_input(session, batch.input_digest)
    spool = Spool(batch)
    try:
        rejected = None
        try:
            _read(batch, checker, spool, is_stopping)
        except BatchRejected as error:
            rejected = error
        return Prepared(batch, caller, spool, rejected or _verdict(batch, spool))
    except Stopped:
        spool.close()
        return None
    except BaseException:
        spool.close()
        raise


def _caller(session: Session, batch: Batch) -> Caller:
    account = session.get_one(Account, batch.account_id)
    key = session.get(ApiKey, batch.key_id) if batch.key_id else None
    return Caller(account.id, batch.key_id or "", {Tier.BATCH: limits_of(account, key, Tier.BATCH)})


def _callbacks_refused(session: Session, account_id: str) -> JobError | None:
    try:
        secrets.require_account_secret(session, account_id)
    except SecretMissing as error:
        return error
    return None


def _read(batch: Batch, checker: Checker, spool: Spool, is_stopping: Callable[[], bool]) -> None:
    most = settings().max_batch_lines
    if _is_over(batch):
        raise BatchRejected("batch_expired", "Its window ended before its lines were checked.")
    try:
        for line in reading.lines(storage().read(batch.input_digest), settings().max_line_bytes):
            if is_stopping():
                raise Stopped
            if spool.lines == most:
                raise BatchRejected("too_many_lines", f"The file has more lines than a batch may: {most}.")
            found = checker.check(line)
            if isinstance(found, Checked):
                spool.add(found)
            else:
                spool.add_fault(found)
    except FileNotFoundError as error:
        raise BatchRejected("input_file_not_found", "The input file's content is gone.") from error


def _is_over(batch: Batch) -> bool:
    return batch.expires_at is not None and clock.now() >= batch.expires_at


def _verdict(batch: Batch, spool: Spool) -> BatchRejected | None:
    if not spool.lines:
        return BatchRejected("empty_file", "The file has no lines.")
    is_whole = spool.invalid == 0
    if is_whole or (batch.on_invalid is OnInvalid.SKIP and spool.loads):
        return None
    return BatchRejected(INVALID_LINES, f"{spool.invalid} of {spool.lines} lines cannot be run.")


def conclude(prepared: Prepared) -> None:
    """Raises `_LineFull` or `Late`."""
    batch, spool = prepared.batch, prepared.spool
    given = (batch.id, spool, batch.price_factor)
    if (why := prepared.rejected) is not None:
        _store(batch, lambda session: enqueuing.reject(session, *given, why))
    elif batch.dry_run:
        _store(batch, lambda session: enqueuing.finish_dry_run(session, *given))
    else:
        _enqueue(prepared)


def _enqueue(prepared: Prepared) -> None:
    batch, spool = prepared.batch, prepared.spool
    entries = _entries(prepared)
    refused = joining.join(batch.id, entries)
    if refused is not None:
        why = _refused_for_good(batch, refused)
        _store(batch, lambda session: enqueuing.reject(session, batch.id, spool, batch.price_factor, why))
        return
    is_kept = False
    try:
        _store(batch, lambda session: enqueuing.enqueue(session, batch.id, spool, batch.price_factor))
        is_kept = True
    finally:
        if not is_kept:
            joining.leave(batch.id, entries)


def _entries(prepared: Prepared) -> list[BulkEntry]:
    batch, limits = prepared.batch, prepared.caller.limits[Tier.BATCH]
    return [
        BulkEntry(batch.account_id, model, batch.completion_window, load.jobs, load.reserved_tokens, limits)
        for model, load in prepared.spool.loads.items()
    ]


def _refused_for_good(batch: Batch, refused: Refused) -> BatchRejected:
    """Raises `_LineFull` where it is not."""
    may_pass = isinstance(refused, LineFull) and not isinstance(refused, AccountFull)
    if may_pass and not _is_over(batch):
        raise _LineFull(str(refused))
    return BatchRejected(refused.code, str(refused))


def _store(batch: Batch, outcome: Outcome) -> None:
    """Raises `Late` where the batch is not validating any more; then nothing is stored."""
    try:
        with transaction() as session:
            after = outcome(session)
            if after is None:
                raise Late
    except IntegrityError as error:
        if isinstance(error.orig, UniqueViolation):
            raise Late from error
        raise
    log.info(
        "batch.validated", batch_id=batch.id, status=after.status, lines=after.total, invalid=after.invalid
    )
