"""What became of the requests of a message batch that has ended, as Anthropic's lines: in order, by pages."""

from collections.abc import Iterator
from heapq import merge
from typing import Any

import orjson

from app.anthropic import message
from app.anthropic.errors import INVALID, envelope
from app.batches import reading, results
from app.batches.messages import never_ran
from app.batches.results import Ended
from app.batches.tables import Batch, BatchFault
from app.files.storage import storage
from app.jobs.states import IncompleteReason, Status
from app.jobs.tables import Job
from config.settings import settings

Json = dict[str, Any]


def lines(batch: Batch) -> Iterator[bytes]:
    found = _of_jobs(batch) if batch.in_progress_at is not None else _of_input(batch)
    for _, said in found:
        yield results.written(said)


def _of_jobs(batch: Batch) -> Iterator[tuple[int, Json]]:
    ran = ((ended.line, _line(ended.job.custom_id, _result(ended))) for ended in results.ended_lines(batch.id))
    faults = ((fault.line, _line(fault.custom_id, _faulty(fault))) for fault in results.faults_of(batch.id))
    yield from merge(ran, faults, key=lambda entry: entry[0])


def _of_input(batch: Batch) -> Iterator[tuple[int, Json]]:
    """Of one whose lines did not become jobs, each request by its name in the input."""
    faults = results.faults_of(batch.id)
    fault = next(faults, None)
    whole = _whole(batch)
    for line in reading.lines(storage().read(batch.input_digest), settings().max_line_bytes):
        while fault is not None and fault.line < line.number:
            fault = next(faults, None)
        if fault is not None and fault.line == line.number:
            yield line.number, _line(fault.custom_id, _faulty(fault))
        else:
            yield line.number, _line(_custom_id(line.raw), whole)


def _whole(batch: Batch) -> Json:
    kind = never_ran(batch)
    if kind != "errored":
        return {"type": kind}
    return {"type": kind, "error": envelope(INVALID, batch.error_message or "The batch cannot be run.")}


def _custom_id(raw: bytes) -> str | None:
    """Of a line that nobody may have checked."""
    try:
        return str(orjson.loads(raw)["custom_id"])
    except (ValueError, TypeError, KeyError):
        return None


def _result(ended: Ended) -> Json:
    """What was cancelled or late has in `message` what there is of it, which Anthropic has no word for."""
    job = ended.job
    if job.status is Status.FAILED:
        return {"type": "errored", "error": envelope(*message.failure(job), job.id)}
    kind = _kind(job)
    if kind != "succeeded" and not job.input_tokens and not job.output_tokens:
        return {"type": kind}
    return {"type": kind, "message": message.describe(job, ended.output)}


def _kind(job: Job) -> str:
    if job.status is Status.CANCELLED:
        return "canceled"
    is_late = job.status is Status.EXPIRED or job.incomplete_reason == IncompleteReason.COMPLETION_WINDOW
    return "expired" if is_late else "succeeded"


def _faulty(fault: BatchFault) -> Json:
    return {"type": "errored", "error": envelope(INVALID, fault.message)}


def _line(custom_id: str | None, result: Json) -> Json:
    return {"custom_id": custom_id or "", "result": result}
