"""What the logs of jobs and batches have to tell: entries that were written as due, taken so that no other
process takes them, and put into words. It knows no endpoint.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import BigInteger, DateTime, RowMapping, TextClause, bindparam, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session

from app.ids import PrefixedId
from app.jobs.states import TERMINAL_EVENT_TYPES, Status
from app.jobs.tables import Surface
from app.openai.choices import EXPIRED_MESSAGE
from app.openai.ids import resp_id
from app.webhooks.catalogue import ENDED_BATCHES, RESPONSE_TYPES
from app.webhooks.messages import cut
from config.settings import settings


@dataclass(frozen=True, slots=True)
class Due:
    """An entry of a log under the types that it is told as, the most telling first, each with its data.
    `webhook_url` is to be told of it; `is_public`: registered endpoints are, too. `asked_at` is when the job or
    batch was submitted.
    """

    account_id: str
    created_at: datetime
    asked_at: datetime
    words: tuple[tuple[str, dict[str, Any]], ...]
    webhook_url: str | None
    is_public: bool


def take(session: Session, limit: int) -> list[Due]:
    """At most `limit` of each log, oldest first; they are due no more once the transaction commits."""
    found = [_of_job(row) for row in session.execute(_TAKE_JOBS, {"limit": limit}).mappings()]
    found += [_of_batch(row) for row in session.execute(_TAKE_BATCHES, {"limit": limit}).mappings()]
    return sorted(found, key=lambda due: due.created_at)


def _typed(statement: str, **types: Any) -> TextClause:
    """With the limit bound and the columns typed that are no plain text or number."""
    typed: Any = text(statement).bindparams(bindparam("limit", type_=BigInteger)).columns(**types)
    return typed  # type: ignore[no-any-return]


_TIMES: Final = {"created_at": DateTime(timezone=True), "asked_at": DateTime(timezone=True)}
_TAKE_JOBS: Final = _typed(
    """
    WITH due AS (
        SELECT job_id, seq FROM job_events WHERE is_due ORDER BY created_at LIMIT :limit FOR UPDATE SKIP LOCKED
    )
    UPDATE job_events event SET is_due = false
    FROM due, jobs job
    WHERE event.job_id = due.job_id AND event.seq = due.seq AND job.id = due.job_id
    RETURNING event.job_id, event.seq, event.type, event.data, event.created_at, job.created_at AS asked_at,
        job.account_id, job.surface, job.webhook_url, job.batch_id, job.line, job.custom_id
    """,
    job_id=PrefixedId("job"),
    account_id=PrefixedId("acct"),
    batch_id=PrefixedId("batch"),
    data=JSONB(),
    **_TIMES,
)
_TAKE_BATCHES: Final = _typed(
    """
    WITH due AS (
        SELECT batch_id, seq FROM batch_events WHERE is_due ORDER BY created_at LIMIT :limit
        FOR UPDATE SKIP LOCKED
    )
    UPDATE batch_events event SET is_due = false
    FROM due, batches batch
    WHERE event.batch_id = due.batch_id AND event.seq = due.seq AND batch.id = due.batch_id
    RETURNING event.batch_id, event.seq, event.type, event.data, event.created_at, batch.created_at AS asked_at,
        batch.account_id, batch.webhook_url, batch.total, batch.completed, batch.failed, batch.input_tokens,
        batch.cached_tokens, batch.output_tokens, batch.reasoning_tokens, batch.error_code, batch.error_message,
        batch.output_file_id, batch.error_file_id
    """,
    batch_id=PrefixedId("batch"),
    account_id=PrefixedId("acct"),
    output_file_id=PrefixedId("file"),
    error_file_id=PrefixedId("file"),
    data=JSONB(),
    **_TIMES,
)


def _of_job(row: RowMapping) -> Due:
    words = [(row["type"], _job(row))]
    if row["surface"] == Surface.RESPONSES and row["type"] in RESPONSE_TYPES:
        words.insert(0, (RESPONSE_TYPES[row["type"]], _response(row)))
    is_ending = row["type"] in TERMINAL_EVENT_TYPES
    # A batch's lines are told of by their batch, but to who was named for one.
    return _due(row, words, is_ending=is_ending, is_public=row["batch_id"] is None)


def _of_batch(row: RowMapping) -> Due:
    is_ending = row["type"] in ENDED_BATCHES
    return _due(row, [(row["type"], _batch(row, is_ending=is_ending))], is_ending=is_ending, is_public=True)


def _due(row: RowMapping, words: list[tuple[str, dict[str, Any]]], *, is_ending: bool, is_public: bool) -> Due:
    return Due(
        row["account_id"],
        row["created_at"],
        row["asked_at"],
        tuple(words),
        row["webhook_url"] if is_ending else None,
        is_public,
    )


def _job(row: RowMapping) -> dict[str, Any]:
    said = {
        **_subject(row["job_id"], "job", row["type"].removeprefix("job."), row["seq"], "jobs"),
        **_facts(row["data"]),
    }
    if row["batch_id"] is not None:
        said["batch"] = {"id": row["batch_id"], "line": row["line"], "custom_id": row["custom_id"]}
    return said


def _response(row: RowMapping) -> dict[str, Any]:
    status = RESPONSE_TYPES[row["type"]].removeprefix("response.")
    said = {
        **_subject(resp_id(row["job_id"]), "response", status, row["seq"], "responses"),
        **_facts(row["data"]),
    }
    if row["type"] == Status.EXPIRED.event_type:
        said["error"] = {"code": "server_error", "message": EXPIRED_MESSAGE}
    return said


def _facts(data: Mapping[str, Any]) -> dict[str, Any]:
    """What a status event says, cut to what a thin body may carry."""
    said = {name: data[name] for name in ("usage", "error", "incomplete_details") if data.get(name)}
    if "error" in said:
        said["error"] = _error(**said["error"])
    return said


def _error(code: str | None, message: str | None) -> dict[str, Any]:
    return {"code": code, "message": cut(message or "")}


def _subject(subject_id: str, kind: str, status: str, sequence: int, path: str) -> dict[str, Any]:
    url = f"{settings().base_url}/v1/{path}/{subject_id}"
    return {"id": subject_id, "object": kind, "status": status, "sequence": sequence, "url": url}


# What a batch's progress says; of `batch.progress` it is in the event, of an end in the batch.
_PROGRESS: Final = (
    *("request_counts", "running", "usage", "lines_per_second", "tokens_per_second"),
    "estimated_finish_at",
)


def _batch(row: RowMapping, *, is_ending: bool) -> dict[str, Any]:
    # Progress is no status: it is told of while a batch runs.
    named = row["type"].removeprefix("batch.")
    status = "in_progress" if named == "progress" else named
    said = _subject(row["batch_id"], "batch", status, row["seq"], "batches")
    said |= {name: row["data"][name] for name in _PROGRESS if name in row["data"]}
    if is_ending:
        said |= _ended(row)
    return said


def _ended(row: RowMapping) -> dict[str, Any]:
    said: dict[str, Any] = {
        "request_counts": {name: row[name] for name in ("total", "completed", "failed")},
        "usage": {
            "input_tokens": row["input_tokens"],
            "input_tokens_details": {"cached_tokens": row["cached_tokens"]},
            "output_tokens": row["output_tokens"],
            "output_tokens_details": {"reasoning_tokens": row["reasoning_tokens"]},
            "total_tokens": row["input_tokens"] + row["output_tokens"],
        },
    }
    said |= {name: row[name] for name in ("output_file_id", "error_file_id") if row[name]}
    if row["error_code"]:
        said["error"] = _error(row["error_code"], row["error_message"])
    return said
