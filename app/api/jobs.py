"""`/v1/jobs`: submit, show, list, cancel, delete."""

import re
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from flask import Response, jsonify, request
from pydantic import BaseModel, ConfigDict, Field, field_validator

from app.api import ending, submitting, views, waiting
from app.api.auth import account_id, protected
from app.api.bodies import parse_body, parse_query, query_values
from app.api.describe import describe
from app.api.errors import BodyInvalid
from app.db import transaction
from app.ids import is_id
from app.jobs import log, queries
from app.jobs.requests import JobRequest
from app.jobs.states import Status
from config.queues import Tier
from config.settings import settings

blueprint = protected("jobs")

_PREFERRED_WAIT: Final = re.compile(r"(?:^|[,;\s])wait=(\d+(?:\.\d+)?)")
_METADATA_FILTER: Final = re.compile(r"metadata\[(.+)\]")


class WaitQuery(BaseModel):
    wait: float | None = Field(None, ge=0, le=settings().max_wait_seconds, description="Long-poll, seconds.")


class ListQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    status: Status | None = None
    model: str | None = None
    tier: Tier | None = None
    batch_id: str | None = Field(None, description="Of the lines of one batch; with `order=asc`, line by line.")
    created_after: datetime | None = Field(None, description="ISO 8601 or Unix seconds.")
    created_before: datetime | None = None
    after: str | None = Field(None, description="The last id of the page before.")
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"

    @field_validator("batch_id")
    @classmethod
    def _is_id(cls, batch_id: str | None) -> str | None:
        if batch_id is not None and not is_id("batch", batch_id):
            raise ValueError("not the id of a batch")
        return batch_id


@blueprint.post("/v1/jobs")
@describe(
    "Submit a job",
    body=JobRequest,
    headers=(("Idempotency-Key", "The same key and body give the same job, running or done."),),
    answers={
        202: (views.JobAccepted, "Accepted: follow it at `urls`."),
        200: (views.JobAccepted, "This Idempotency-Key was used before, with the same body: its job."),
    },
    errors=(400, 401, 404, 409, 413, 429, 503),
)
def submit() -> tuple[Response, int]:
    joined = submitting.submit(parse_body(JobRequest), submitting.idempotency_key())
    job, is_new = joined.job, joined.is_new
    response = jsonify(views.accepted(job, joined.ahead))
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    if not is_new:
        response.headers["Idempotency-Replayed"] = "true"
    return response, 202 if is_new else 200


@blueprint.get("/v1/jobs/<job_id>")
@describe(
    "Show a job, or wait for its end",
    query=WaitQuery,
    headers=(("Prefer", "`wait=SECONDS`: as the query parameter."),),
    answers={200: (views.JobView, "The job with its output so far.")},
    errors=(400, 401, 404),
)
def show(job_id: str) -> Response:
    seconds = _wanted_wait()
    view = _view(job_id)
    if seconds and not Status(view["status"]).is_terminal:
        waiting.until_ended(job_id, view["last_seq"], seconds)
        view = _view(job_id)
    response = jsonify(view)
    if "Prefer" in request.headers and seconds is not None:
        response.headers["Preference-Applied"] = f"wait={seconds:g}"
    return response


@blueprint.get("/v1/jobs")
@describe(
    "List jobs",
    query=ListQuery,
    answers={200: (views.JobList, "A page. `metadata[KEY]=VALUE` filters by metadata.")},
    errors=(400, 401),
)
def index() -> Response:
    page = parse_query(ListQuery)
    chosen = queries.Filter(
        page.status,
        page.model,
        page.tier,
        _metadata_filter(),
        page.batch_id,
        page.created_after,
        page.created_before,
    )
    with transaction() as session:
        if page.after is not None:
            queries.get_job(session, account_id(), page.after)
        found = queries.list_jobs(
            session,
            account_id(),
            chosen,
            after=page.after,
            limit=page.limit + 1,
            newest_first=page.order == "desc",
        )
    jobs = found[: page.limit]
    return jsonify(
        object="list",
        data=[views.whole(job) for job in jobs],
        first_id=jobs[0].id if jobs else None,
        last_id=jobs[-1].id if jobs else None,
        has_more=len(found) > page.limit,
    )


@blueprint.post("/v1/jobs/<job_id>/cancel")
@describe(
    "Cancel a job",
    answers={200: (views.JobView, "The job with its partial output; as it was, if it had ended already.")},
    errors=(401, 404),
)
def cancel(job_id: str) -> Response:
    with transaction() as session:
        queries.get_job(session, account_id(), job_id)
    ending.cancel(job_id)
    return jsonify(_view(job_id))


@blueprint.delete("/v1/jobs/<job_id>")
@describe(
    "Delete a finished job with its output and log",
    answers={200: (views.JobDeleted, "It is gone.")},
    errors=(401, 404, 409),
)
def delete(job_id: str) -> Response:
    with transaction() as session:
        queries.delete_job(session, account_id(), job_id)
    return jsonify(id=job_id, object="job.deleted", deleted=True)


def _view(job_id: str) -> dict[str, Any]:
    with transaction() as session:
        # One snapshot: following from the cursor gives exactly what the output does not have yet.
        session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
        job = queries.get_job(session, account_id(), job_id)
        last_seq = log.last_seq(session, job_id)
        output = log.read_output(session, job)
    return views.whole(job, output, last_seq)


def _wanted_wait() -> float | None:
    seconds = parse_query(WaitQuery).wait
    preferred = _PREFERRED_WAIT.search(request.headers.get("Prefer", ""))
    if seconds is None and preferred:
        # A preference beyond what we do is honoured as far as it goes (RFC 7240).
        seconds = min(float(preferred[1]), settings().max_wait_seconds)
    return seconds


def _metadata_filter() -> tuple[tuple[str, str], ...]:
    pairs = []
    for name, value in query_values().items():
        if match := _METADATA_FILTER.fullmatch(name):
            pairs.append((match[1], value))
        elif "[" in name:
            raise BodyInvalid(f"Unknown parameter: '{name}'.", name)
    return tuple(pairs)
