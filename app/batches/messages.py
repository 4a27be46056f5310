"""Batches as Anthropic's message batches: made of inline requests, which become the batch's input, and told by
how many of them succeeded, failed, were cancelled or came too late.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import orjson
from pydantic import BaseModel, ConfigDict, StringConstraints
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app import clock
from app.accounts.limits import Caller
from app.batches import creating, queries
from app.batches.counting import ANSWERED, ENDED, LATE
from app.batches.creating import CreateBatch, OutputExpiry
from app.batches.errors import BatchActive, BatchIdempotencyConflict, BatchNotFound, ResultsGone
from app.batches.states import BatchStatus, OnInvalid
from app.batches.tables import Batch
from app.files import shelf
from app.files.errors import FileNotFound
from app.files.shelf import Draft
from app.files.tables import Purpose
from app.jobs import log
from app.jobs.errors import RequestInvalid
from app.jobs.requests import DAY_SECONDS
from app.jobs.states import Status
from app.jobs.tables import Job
from app.surfaces import parsing
from config.settings import settings

ENDPOINT: Final = "/v1/messages"
KEPT_SECONDS: Final = 29 * DAY_SECONDS  # as long as Anthropic keeps results
# In the batch's metadata: how many requests it has, until its lines are read.
REQUESTS: Final = "requests"
ERASED_AT_ONCE: Final = 1_000


class InlineRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    custom_id: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    params: dict[str, Any]


def lines(members: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a batch's input. Raises `RequestInvalid` for all that is wrong but `params`."""
    limits = settings()
    seen: set[str] = set()
    for index, raw in enumerate(members):
        where = f"requests.{index}"
        if index == limits.max_batch_lines:
            raise RequestInvalid("requests", f"A batch may have {limits.max_batch_lines} requests.")
        asked = _request(raw, where)
        if asked.custom_id in seen:
            name = f"{where}.custom_id"
            raise RequestInvalid(name, f"'{name}' is that of an earlier request: '{asked.custom_id}'.")
        seen.add(asked.custom_id)
        line = orjson.dumps(
            {"custom_id": asked.custom_id, "method": "POST", "url": ENDPOINT, "body": asked.params}
        )
        if len(line) > limits.max_line_bytes:
            raise RequestInvalid(where, f"'{where}' is larger than {limits.max_line_bytes} bytes.")
        yield line + b"\n"
    if not seen:
        raise RequestInvalid("requests", "A batch has at least one request.")


def _request(raw: bytes, where: str) -> InlineRequest:
    try:
        return parsing.parse(InlineRequest, parsing.load_object(raw, what=f"'{where}'"))
    except RequestInvalid as error:
        name = where if error.param is None else f"{where}.{error.param}"
        raise RequestInvalid(name, str(error).replace(f"'{error.param}'", f"'{name}'")) from error


def create(
    session: Session, caller: Caller, key: str | None, digest: str, size: int, requests: int
) -> tuple[Batch, bool]:
    """The batch whose input is stored under `digest`, and whether it is new. Raises `BatchIdempotencyConflict`,
    `StorageFull` and what `creating.create` does.
    """
    if key is not None and (earlier := _find_earlier(session, caller.account_id, key, digest)):
        return earlier, False
    draft = Draft(caller.account_id, digest, size, "message_batch.jsonl", Purpose.BATCH, KEPT_SECONDS)
    wanted = CreateBatch(
        input_file_id=shelf.keep(session, draft).id,
        endpoint=ENDPOINT,
        metadata={REQUESTS: str(requests)},
        output_expires_after=OutputExpiry(anchor="created_at", seconds=KEPT_SECONDS),
        on_invalid=OnInvalid.SKIP,
    )
    return creating.create(session, caller, wanted, key)


def _find_earlier(session: Session, account_id: str, key: str, digest: str) -> Batch | None:
    batch = session.scalar(select(Batch).where(Batch.account_id == account_id, Batch.idempotency_key == key))
    if batch is not None and (batch.endpoint, batch.input_digest) != (ENDPOINT, digest):
        raise BatchIdempotencyConflict(batch.id)
    return batch


def get_batch(session: Session, account_id: str, batch_id: str) -> Batch:
    """Raises `BatchNotFound`, also for a batch of other requests."""
    batch = queries.get_batch(session, account_id, batch_id)
    if batch.endpoint != ENDPOINT:
        raise BatchNotFound(batch_id)
    return batch


def list_batches(
    session: Session, account_id: str, *, after: str | None, before: str | None, limit: int
) -> tuple[list[Batch], bool]:
    """One page, newest first, and whether there are more in its direction: older than `after`, or the next that
    are newer than `before`.
    """
    statement = select(Batch).where(Batch.account_id == account_id, Batch.endpoint == ENDPOINT)
    if after is not None:
        statement = statement.where(Batch.id < after)
    if before is not None:
        statement = statement.where(Batch.id > before)
    order = Batch.id.desc() if before is None else Batch.id
    found = list(session.scalars(statement.order_by(order).limit(limit + 1)))
    page = found[:limit]
    return page if before is None else page[::-1], len(found) > limit


@dataclass(frozen=True, slots=True)
class Tally:
    processing: int = 0
    succeeded: int = 0
    errored: int = 0
    canceled: int = 0
    expired: int = 0


def tally(session: Session, batches: Sequence[Batch]) -> dict[str, Tally]:
    """By batch id."""
    found = {row.batch_id: row for row in session.execute(_ENDED_LINES.where(Job.batch_id.in_(_ids(batches))))}
    return {batch.id: _tally(batch, found.get(batch.id)) for batch in batches}


_ENDED_LINES: Final = select(
    Job.batch_id,
    func.count().label("lines"),
    func.count().filter(ENDED).label("ended"),
    func.count().filter(ANSWERED).label("succeeded"),
    func.count().filter(Job.status == Status.CANCELLED).label("canceled"),
    func.count().filter(LATE).label("expired"),
).group_by(Job.batch_id)


def _ids(batches: Sequence[Batch]) -> list[str]:
    return [batch.id for batch in batches]


def _tally(batch: Batch, row: Any) -> Tally:
    if batch.in_progress_at is None:
        requests = int(batch.labels.get(REQUESTS, 0)) or batch.total
        return Tally(**{never_ran(batch): requests})
    if row is None:  # past its retention
        return Tally(succeeded=batch.completed, errored=batch.failed)
    errored = row.ended - row.succeeded - row.canceled - row.expired + batch.invalid
    return Tally(row.lines - row.ended, row.succeeded, errored, row.canceled, row.expired)


def never_ran(batch: Batch) -> str:
    """What the requests of a batch count as whose lines did not become jobs."""
    if batch.finished_at is None:
        return "processing"
    if batch.status is BatchStatus.CANCELLED:
        return "canceled"
    return "expired" if batch.error_code == "batch_expired" else "errored"


def archived_at(batch: Batch) -> datetime | None:
    """When its results went, if they have."""
    kept = min(timedelta(seconds=KEPT_SECONDS), timedelta(days=settings().retention_days))
    at = batch.created_at + kept
    return at if batch.finished_at is not None and at <= clock.now() else None


def require_ended(batch: Batch) -> None:
    """Raises `BatchActive`."""
    if batch.finished_at is None:
        raise BatchActive(batch.id, batch.status)


def require_results(batch: Batch) -> None:
    """Raises `BatchActive` or `ResultsGone`."""
    require_ended(batch)
    if archived_at(batch) is not None:
        raise ResultsGone(batch.id)


def erase_some_lines(session: Session, batch: Batch) -> int:
    """Erase jobs of a batch that has ended. How many; 0 once there are none."""
    some = select(Job.id).where(Job.batch_id == batch.id).limit(ERASED_AT_ONCE)
    job_ids = session.scalars(some).all()
    log.erase(session, job_ids)
    return len(job_ids)


def erase(session: Session, batch: Batch) -> None:
    """Erase a batch that has no jobs any more, with its files."""
    for file_id in (batch.input_file_id, batch.output_file_id, batch.error_file_id):
        try:
            if file_id is not None:
                shelf.drop(session, batch.account_id, file_id)
        except FileNotFound:
            continue
    session.delete(batch)
