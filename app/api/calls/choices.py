"""Chat completions and completions: a call starts a job for each choice, and is answered once all have ended,
or streamed. Which bodies, jobs and words are either's own is their modules' business.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from flask import Response, jsonify

from app.api import submitting
from app.api.calls import calling, telling
from app.api.calls.calling import Call
from app.api.errors import envelope
from app.db import transaction
from app.jobs import log
from app.jobs.errors import JobError, JobNotFound
from app.jobs.log import Output
from app.jobs.queries import find_job
from app.jobs.requests import JobRequest
from app.jobs.submission import Spoken
from app.jobs.tables import Job
from app.openai import extras
from app.openai.choices import Ending
from app.openai.sampling import Sampling
from app.openai.streamed import Streamed
from app.streams.frames import Frame, to_json

DONE: Final = b"data: [DONE]\n\n"

# What both routes say of themselves.
HEADERS: Final = (("Idempotency-Key", "The same key and body attach to the same jobs, running or done."),)
ERRORS: Final = (400, 401, 404, 409, 413, 429, 500, 503, 504)
MEDIA_TYPES: Final = ("application/json", "text/event-stream")


@dataclass(frozen=True, slots=True)
class Told:
    """How a surface tells of jobs: whole, and as they come. `names` are its words for a job's fields."""

    names: Mapping[str, str]
    describe: Callable[[Sequence[Job], Sequence[Output]], dict[str, Any]]
    project: Callable[[Sequence[Job]], Streamed]


def answer(body: Sampling, asked: Sequence[tuple[JobRequest, Spoken]], told: Told) -> Response:
    """Raises as `calling.start` and `calling.wait`."""
    key = submitting.idempotency_key()
    try:
        call = calling.start(asked, key, goes_on=calling.goes_on(body, extras.resolve(body), key))
    except JobError as error:
        raise extras.reworded(error, extras.words_of(body, told.names)) from None
    if body.stream:
        return telling.stream(call, ChunkStory(told.project(call.jobs)))
    calling.wait(call)
    jobs, outputs = _read(call)
    for job in jobs:
        if failure := Ending.of_job(job).failure:
            status = 400 if failure["type"] == "invalid_request_error" else 500
            return _failed(status, failure)
    return jsonify(told.describe(jobs, outputs))


def _read(call: Call) -> tuple[list[Job], list[Output]]:
    jobs, outputs = [], []
    with transaction() as session:
        for started in call.jobs:
            job = find_job(session, started.id)
            if job is None:
                raise JobNotFound(started.id)
            jobs.append(job)
            outputs.append(log.read_output(session, job))
    return jobs, outputs


def _failed(status: int, failure: dict[str, Any]) -> Response:
    response = envelope(status, failure["message"], failure["code"])
    if status >= 500:
        # The job was tried as often as it is worth.
        response.headers["x-should-retry"] = "false"
    return response


class ChunkStory:
    """Chunks as server-sent events."""

    def __init__(self, projector: Streamed) -> None:
        self._projector = projector

    @property
    def is_over(self) -> bool:
        return self._projector.is_over

    def tell(self, index: int, batch: list[Frame]) -> bytes:
        return b"".join(_event(chunk) for frame in batch for chunk in self._projector.feed(index, frame))

    def finish(self) -> bytes:
        return b"".join(map(_event, self._projector.finish())) + DONE

    def broken(self, code: str, message: str) -> bytes:
        error = {"message": message, "type": "server_error", "code": code, "param": None}
        return _event({"error": error}) + DONE


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: %s\n\n" % to_json(chunk)
