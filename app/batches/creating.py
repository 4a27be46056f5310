"""A batch is asked for: its row and first event, or that of an earlier request with the same Idempotency-Key.
What its file says is looked at later (`app.batches.intake`).
"""

import hashlib
from collections.abc import Collection, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import Field, StringConstraints, field_validator
from sqlalchemy import func, select, text, update
from sqlalchemy.dialects.postgresql import distinct_on, insert
from sqlalchemy.orm import Session

from app.accounts.limits import Caller
from app.batches import lifecycle
from app.batches.errors import (
    BatchIdempotencyConflict,
    InputFileInvalid,
    InputFileNotFound,
)
from app.batches.states import BatchStatus, OnInvalid
from app.batches.tables import Batch
from app.files import shelf
from app.files.errors import FileNotFound
from app.files.tables import Blob, Purpose, StoredFile
from app.ids import new_id
from app.jobs.errors import RequestInvalid
from app.jobs.requests import DAY_SECONDS, MAX_METADATA_PAIRS, MetadataKey, MetadataValue, Shape
from app.surfaces import asking
from app.webhooks import secrets
from config.catalogue import price_factors
from config.queues import Tier, Window
from config.settings import settings

LEAST_OUTPUT_SECONDS: Final = 3_600


class OutputExpiry(Shape):
    anchor: Literal["created_at"]
    seconds: int = Field(ge=LEAST_OUTPUT_SECONDS, le=30 * DAY_SECONDS)


class CreateBatch(Shape):
    """The body of `POST /v1/batches`."""

    input_file_id: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    endpoint: Annotated[str, StringConstraints(min_length=1, max_length=128)] = Field(
        description="That of every line."
    )
    completion_window: Window = Field(
        Window.ONE_DAY, description="By when it is wanted; a longer one costs less."
    )
    metadata: dict[MetadataKey, MetadataValue] = Field({}, max_length=MAX_METADATA_PAIRS)
    output_expires_after: OutputExpiry | None = Field(
        None, description="When the files that it leaves go; without one they stay."
    )
    on_invalid: OnInvalid = Field(
        OnInvalid.FAIL,
        description="What lines that cannot be run do: fail the batch, or count as failed while others run.",
    )
    dry_run: bool = Field(default=False, description="Only check the lines, and say what they would cost.")
    webhook_url: Annotated[str, StringConstraints(min_length=1, max_length=2048)] | None = Field(
        None, description="Told of its end."
    )

    @field_validator("metadata", mode="before")
    @classmethod
    def _null_is_none(cls, given: Any) -> Any:
        return {} if given is None else given


def create(session: Session, caller: Caller, wanted: CreateBatch, key: str | None) -> tuple[Batch, bool]:
    """The batch, and whether it is new. A `webhook_url` was checked before (`registering.require_callback`).
    Raises `BatchError`, `RequestInvalid` or `SecretMissing`.
    """
    if wanted.endpoint not in asking.ENDPOINTS:
        known = ", ".join(asking.ENDPOINTS)
        raise RequestInvalid("endpoint", f"Batches run no endpoint '{wanted.endpoint}', but: {known}.")
    request_hash = _hash(wanted)
    if key is not None and (earlier := find_earlier(session, caller.account_id, key, request_hash)):
        return earlier, False
    price_factor = _price_factor(wanted)
    file = _input_file(session, caller.account_id, wanted.input_file_id)
    # Its bytes are needed, also where the client deletes the file at once.
    hold_input(session, file.digest)
    if wanted.webhook_url is not None:
        secrets.require_account_secret(session, caller.account_id)
    values = {
        "id": new_id("batch"),
        "account_id": caller.account_id,
        "key_id": caller.key_id,
        "status": BatchStatus.VALIDATING,
        "endpoint": wanted.endpoint,
        "input_file_id": file.id,
        "input_digest": file.digest,
        "completion_window": wanted.completion_window,
        "price_factor": price_factor,
        "on_invalid": wanted.on_invalid,
        "dry_run": wanted.dry_run,
        "labels": wanted.metadata,
        "idempotency_key": key,
        "request_hash": request_hash,
        "webhook_url": wanted.webhook_url,
        "output_expires_after_seconds": wanted.output_expires_after and wanted.output_expires_after.seconds,
    }
    batch = insert_batch(session, values)
    if batch is None:
        assert key is not None
        earlier = find_earlier(session, caller.account_id, key, request_hash)
        assert earlier is not None
        return earlier, False
    lifecycle.append_event(session, batch.id, BatchStatus.VALIDATING.event_type, {})
    return batch, True


def insert_batch(session: Session, values: dict[str, Any]) -> Batch | None:
    """The row, which its window's end is added to. None where its Idempotency-Key was used before."""
    seconds = values["completion_window"].seconds
    changes = {getattr(Batch, name): value for name, value in values.items()}
    if seconds is not None:
        changes[Batch.expires_at] = func.now() + timedelta(seconds=seconds)
    inserted = insert(Batch).values(changes)
    return session.scalar(
        inserted.on_conflict_do_nothing(
            index_elements=[Batch.account_id, Batch.idempotency_key],
            index_where=text("idempotency_key IS NOT NULL"),
        ).returning(Batch)
    )


def hold_input(session: Session, digest: str) -> None:
    """The bytes stay `blob_grace_seconds` from now on, also without a file."""
    session.execute(update(Blob).where(Blob.digest == digest).values(touched_at=func.now()))


def next_validating(
    session: Session, without: Collection[str] = (), served_at: Mapping[str, float] | None = None
) -> tuple[str, str] | None:
    """A batch whose lines are still to be checked, and its account: the oldest of the account that was not
    `served_at` all or whose turn is longest ago. Those in `without` are passed over.
    """
    served = served_at or {}
    oldest = (
        select(Batch.id, Batch.account_id)
        .ext(distinct_on(Batch.account_id))
        .where(Batch.finished_at.is_(None), Batch.status == BatchStatus.VALIDATING)
        .where(Batch.id.not_in(without))
        .order_by(Batch.account_id, Batch.id)
    )
    found = [(batch_id, account_id) for batch_id, account_id in session.execute(oldest)]
    return min(found, key=lambda pair: (served.get(pair[1], float("-inf")), pair[0]), default=None)


def _hash(wanted: CreateBatch) -> bytes:
    said = orjson.dumps(wanted.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(said).digest()


def find_earlier(session: Session, account_id: str, key: str, request_hash: bytes) -> Batch | None:
    """The batch that this Idempotency-Key made before. Raises `BatchIdempotencyConflict` for another body."""
    batch = session.scalar(select(Batch).where(Batch.account_id == account_id, Batch.idempotency_key == key))
    if batch is not None and batch.request_hash != request_hash:
        raise BatchIdempotencyConflict(batch.id)
    return batch


def _price_factor(wanted: CreateBatch) -> Decimal:
    offered = price_factors().get(Tier.BATCH, {})
    if wanted.completion_window not in offered:
        raise RequestInvalid(
            "completion_window",
            f"Batches have no completion_window of {wanted.completion_window}, but: {', '.join(offered)}.",
        )
    return offered[wanted.completion_window]


def _input_file(session: Session, account_id: str, file_id: str) -> StoredFile:
    try:
        file = shelf.get_file(session, account_id, file_id)
    except FileNotFound as error:
        raise InputFileNotFound(file_id) from error
    if file.purpose is not Purpose.BATCH:
        raise InputFileInvalid(f"The file's purpose is '{file.purpose}'; a batch reads one of purpose 'batch'.")
    if file.bytes == 0:
        raise InputFileInvalid("The file is empty.")
    if file.bytes > settings().max_batch_bytes:
        raise InputFileInvalid(
            f"The file has {file.bytes} bytes; a batch's may have {settings().max_batch_bytes}."
        )
    return file
