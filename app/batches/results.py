"""What became of a batch's lines, as the lines of its output and its error file: ordered, read page by page in
short transactions, whatever the size. While it runs, those that have ended.
"""

from collections.abc import Iterator, Sequence
from heapq import merge
from typing import Any, Final, NamedTuple

import orjson
from sqlalchemy import ColumnElement, func, select

from app.batches.counting import ANSWERED, ENDED
from app.batches.tables import Batch, BatchFault
from app.db import transaction
from app.jobs.log import Output
from app.jobs.outputs import read_outputs
from app.jobs.states import Status
from app.jobs.tables import Job
from app.surfaces import telling

LINES_LISTED: Final = 1_000
# What is held at once: lines, and tokens of their prompts and outputs.
PAGE_LINES: Final = 200
PAGE_TOKENS: Final = 100_000
CLIENT_CLOSED: Final = 499  # nginx's, for what its client no longer wants
TOO_LATE: Final = 504


class Ended(NamedTuple):
    """A line that was run, or was to be."""

    line: int
    job: Job
    output: Output


def output_lines(batch: Batch) -> Iterator[bytes]:
    """Lines that have an answer."""
    for ended in ended_lines(batch.id, ANSWERED):
        yield written(_answered(ended))


def error_lines(batch: Batch) -> Iterator[bytes]:
    """Lines that have none, and those that could not be run."""
    failed = ((ended.line, _without_answer(batch, ended)) for ended in ended_lines(batch.id, ENDED & ~ANSWERED))
    faults = ((fault.line, _faulty(batch, fault)) for fault in faults_of(batch.id))
    for _, said in merge(failed, faults, key=lambda entry: entry[0]):
        yield written(said)


def ended_lines(batch_id: str, which: ColumnElement[bool] = ENDED) -> Iterator[Ended]:
    """By line."""
    after = 0
    while page := _sizes(batch_id, which, after):
        for some in _fitting(page):
            yield from _read(some)
        after = page[-1].line


class _Size(NamedTuple):
    job_id: str
    line: int
    tokens: int


def _sizes(batch_id: str, which: ColumnElement[bool], after: int) -> list[_Size]:
    """The next lines, without what may be long."""
    statement = (
        select(Job.id, func.coalesce(Job.line, 0), Job.prompt_tokens + Job.output_tokens)
        .where(Job.batch_id == batch_id, Job.line > after, which)
        .order_by(Job.line)
        .limit(LINES_LISTED)
    )
    with transaction() as session:
        return [_Size(*row) for row in session.execute(statement)]


def _fitting(sizes: Sequence[_Size]) -> Iterator[list[str]]:
    """The ids of as many as may be held at once, and then of the next."""
    ids: list[str] = []
    tokens = 0
    for size in sizes:
        if ids and (len(ids) >= PAGE_LINES or tokens + size.tokens > PAGE_TOKENS):
            yield ids
            ids, tokens = [], 0
        ids.append(size.job_id)
        tokens += size.tokens
    yield ids


def _read(job_ids: Sequence[str]) -> list[Ended]:
    with transaction() as session:
        jobs = list(session.scalars(select(Job).where(Job.id.in_(job_ids)).order_by(Job.line)))
        outputs = read_outputs(session, jobs)
    return [Ended(job.line or 0, job, outputs[job.id]) for job in jobs]


def faults_of(batch_id: str) -> Iterator[BatchFault]:
    """By line."""
    after = -1
    while True:
        statement = select(BatchFault).where(BatchFault.batch_id == batch_id, BatchFault.line > after)
        with transaction() as session:
            page = session.scalars(statement.order_by(BatchFault.line).limit(LINES_LISTED)).all()
        if not page:
            return
        yield from page
        after = page[-1].line


def _answered(ended: Ended) -> dict[str, Any]:
    return _line(ended.job, _response(200, ended.job, telling.describe(ended.job, ended.output)), None)


def _without_answer(batch: Batch, ended: Ended) -> dict[str, Any]:
    """A line that failed answers with its error; one that was stopped, with what there is of it."""
    job = ended.job
    if job.status is Status.FAILED:
        body = {"error": telling.failure(job)}
        return _line(job, _response(telling.status_code(job), job, body), None)
    status_code = CLIENT_CLOSED if job.status is Status.CANCELLED else TOO_LATE
    partial = telling.describe(job, ended.output) if job.input_tokens or job.output_tokens else None
    return _line(job, partial and _response(status_code, job, partial), _reason(batch, job))


def _reason(batch: Batch, job: Job) -> dict[str, str]:
    if job.status is not Status.CANCELLED:
        return {"code": "batch_expired", "message": "The batch's completion window ended before this line had."}
    asked_at = job.cancel_requested_at
    if batch.cancelling_at is not None and (asked_at is None or asked_at >= batch.cancelling_at):
        return {"code": "batch_cancelled", "message": "The batch was cancelled."}
    return {"code": "job_cancelled", "message": "This line was cancelled."}


def _faulty(batch: Batch, fault: BatchFault) -> dict[str, Any]:
    error = {
        "message": fault.message,
        "type": "invalid_request_error",
        "param": fault.param,
        "code": fault.code,
    }
    return {
        "id": f"batch_req_{batch.id.removeprefix('batch_')}_{fault.line}",
        "custom_id": fault.custom_id,
        "line": fault.line,
        "response": {"status_code": 400, "request_id": None, "body": {"error": error}},
        "error": None,
    }


def _response(status_code: int, job: Job, body: dict[str, Any]) -> dict[str, Any]:
    return {"status_code": status_code, "request_id": job.id, "body": body}


def _line(job: Job, response: dict[str, Any] | None, error: dict[str, str] | None) -> dict[str, Any]:
    return {
        "id": f"batch_req_{job.id.removeprefix('job_')}",
        "custom_id": job.custom_id,
        "response": response,
        "error": error,
    }


# Some readers take these for ends of lines.
_ESCAPED: Final = (
    ("\u2028".encode(), rb"\u2028"),
    ("\u2029".encode(), rb"\u2029"),
    ("\u0085".encode(), rb"\u0085"),
)


def written(said: dict[str, Any]) -> bytes:
    """As a line."""
    written = orjson.dumps(said)
    for character, escaped in _ESCAPED:
        written = written.replace(character, escaped)
    return written + b"\n"
