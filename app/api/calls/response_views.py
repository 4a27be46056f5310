"""Responses as clients see them: found, whole, or as the events of a stream."""

from typing import Any, Final, Literal

from flask import g
from pydantic import BaseModel, ConfigDict
from sqlalchemy.orm import Session

from app.api.auth import account_id
from app.db import transaction
from app.jobs import log, queries
from app.jobs.tables import Job, Surface
from app.openai import ids
from app.openai.errors import ResponseNotFound
from app.openai.responses import response
from app.openai.responses.events import Projector
from app.streams.frames import Frame, to_json

MEDIA_TYPES: Final = ("application/json", "text/event-stream")
STREAMED: Final = " With `stream`, its events as server-sent events."


class ResponseView(BaseModel):
    """OpenAI's Response."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: Literal["response"] = "response"
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


def get(response_id: str) -> Job:
    """The caller's response. Raises `ResponseNotFound`."""
    with transaction() as session:
        job = find(session, response_id)
    if job is None:
        raise ResponseNotFound(response_id)
    return job


def find(session: Session, response_id: str) -> Job | None:
    """The caller's response; not one that nobody was to find again, but for who has its conversation open."""
    job_id = ids.job_id_of(ids.RESPONSE, response_id)
    job = queries.find_job(session, job_id) if job_id else None
    if job is None or job.account_id != account_id() or job.surface is not Surface.RESPONSES:
        return None
    is_findable = job.is_stored or (job.echo or {}).get("background")
    return job if is_findable or job.id in g.get("own_jobs", ()) else None


def view(job_id: str) -> dict[str, Any]:
    """The whole Response. Raises `ResponseNotFound`."""
    with transaction() as session:
        # One snapshot of the row and its output.
        session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
        job = queries.find_job(session, job_id)
        if job is None:
            raise ResponseNotFound(ids.resp_id(job_id))
        return response.describe(job, log.read_output(session, job))


class EventStory:
    """Events as server-sent events; a response's stream ends with its last, and without `[DONE]`."""

    def __init__(self, projector: Projector) -> None:
        self._projector = projector

    @property
    def is_over(self) -> bool:
        return self._projector.is_over

    def tell(self, index: int, batch: list[Frame]) -> bytes:  # noqa: ARG002 - a response is one job
        return b"".join(_event(event) for frame in batch for event in self._projector.feed(frame))

    def finish(self) -> bytes:
        return b""

    def broken(self, code: str, message: str) -> bytes:
        return _event(self._projector.broken(code, message))


def _event(event: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), to_json(event))
