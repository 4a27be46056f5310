"""A call of OpenAI's API: the jobs that one request starts or attaches to, waiting for them, following them,
and what becomes of them when the request ends first. What is said of them is the caller's.

A request that ends before its jobs cancels those that it created, unless they are to go on: because they run in
the background, because its client said so, or because it gave an Idempotency-Key, with which it can come back.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog
from flask import Response, after_this_request, request

from app import clock
from app.api import draining, ending, following, serving, submitting, wire
from app.api.calls.merging import Batch, merged
from app.api.errors import DATABASE_AWAY, ClientLeft, NotServed, ServerStopping, SyncTimeout
from app.api.submitting import Joined
from app.ids import new_id
from app.jobs.requests import JobRequest
from app.jobs.states import Status
from app.jobs.submission import Spoken
from app.jobs.tables import Job, JobEvent
from app.openai.extras import Extras, Routing
from app.streams import channel, frames
from app.streams.frames import Frame
from app.streams.hub import Inbox, hub
from config.settings import settings

log = structlog.get_logger(__name__)

# How soon a call whose end cancels its jobs notices that its client left; others look once a second.
LOOK_SECONDS: Final = 0.25

INSTEAD: Final = (
    "Do not wait for what takes long: use background mode (POST /v1/responses with 'background': true) or"
    " POST /v1/jobs."
)


@dataclass(slots=True)
class Call:
    """What one request started or attached to. `inboxes` are those of new jobs, watched since before they were
    stored. Its jobs `goes_on` without the request, or only `is_resumable`: can be followed by id where this
    server gives up. Close it in the end.
    """

    joined: list[Joined]
    goes_on: bool
    is_resumable: bool = False
    inboxes: list[Inbox] = field(default_factory=list)
    watches: ExitStack = field(default_factory=ExitStack)
    running: set[int] = field(default_factory=set)
    began_at: float = field(default_factory=clock.monotonic)
    has_started: bool = False  # a worker took one of its jobs

    @property
    def jobs(self) -> list[Job]:
        return [joined.job for joined in self.joined]

    @property
    def is_over(self) -> bool:
        return not self.running

    def give_up(self) -> None:
        """The server, not the client, ends the request: what can be resumed goes on."""
        self.goes_on = self.goes_on or self.is_resumable

    def close(self) -> None:
        """Let go. What was created and has not ended is cancelled, unless it goes on."""
        self.watches.close()
        left, self.running = self.running, set()
        if not self.goes_on:
            for index in left:
                if self.joined[index].is_new:
                    _abandon(self.joined[index].job.id)

    def follow(self) -> Iterator[Batch]:
        """What comes of the jobs from their beginning, one frame a sequence number of output, each list with
        the index of its job, until all have ended. An empty list comes when nothing did for a while. Raises
        `JobNotFound` when one is deleted, and `NotServed` where no worker comes for jobs that need the request.
        """
        tick_seconds = following.TICK_SECONDS if self.goes_on else LOOK_SECONDS
        followers = [self._follow_one(index, tick_seconds) for index in range(len(self.joined))]
        together = merged(followers, tick_seconds) if len(followers) > 1 else ((0, b) for b in followers[0])
        for index, batch in together:
            if batch and batch[-1].is_last:
                self.running.discard(index)
            self.has_started = self.has_started or (bool(batch) and batch[-1].seq > 1)
            yield index, batch
            self._require_worker()

    def _require_worker(self) -> None:
        """One that restarts is waited for."""
        waited = clock.monotonic() - self.began_at
        if self.has_started or self.goes_on or waited < settings().worker_absence_seconds:
            return
        for job in self.jobs:
            if not serving.workers_of(job.model):
                raise NotServed(f"No worker serves '{job.model}' right now. {INSTEAD}")

    def _follow_one(self, index: int, tick_seconds: float) -> Iterator[list[Frame]]:
        joined = self.joined[index]
        job_id = joined.job.id
        in_pieces = partial(channel.follow_in_pieces, tick_seconds=tick_seconds)
        if not joined.is_new or not self.inboxes:
            yield from following.steadily(job_id, 0, in_pieces)
            return
        yield [_queued(joined.job)]
        live = partial(channel.follow_new, self.inboxes[index], tick_seconds=tick_seconds)
        yield from following.steadily(job_id, 1, live, in_pieces)


def _queued(job: Job) -> Frame:
    """The first event of a new job, as it was stored."""
    kind = Status.QUEUED.event_type
    return frames.of_event(
        JobEvent(job_id=job.id, seq=1, first_seq=1, type=kind, data={"attempt": 0}, created_at=job.created_at)
    )


def goes_on(body: Extras, routing: Routing, key: str | None) -> bool:
    """Whether a job outlives the request that waits for it."""
    if body.on_disconnect is None and "on_disconnect" not in body.metadata:
        return key is not None
    return routing.on_disconnect == "continue"


def start(asked: Sequence[tuple[JobRequest, Spoken]], key: str | None, *, goes_on: bool) -> Call:
    """Submit jobs that this request waits for; choice `i` beyond the first has the idempotency key `KEY#i`.
    Raises as `submitting.submit`, and `ServerBusy` or `SyncTimeout` where waiting is in vain.
    """
    following.require_place()
    call = Call([], goes_on)
    try:
        for index, (wanted, spoken) in enumerate(asked):
            job_id = new_id("job")
            call.inboxes.append(call.watches.enter_context(hub().watch(job_id)))
            own_key = f"{key}#{index}" if key is not None and index else key
            joined = submitting.submit(wanted, own_key, spoken, job_id)
            call.joined.append(joined)
            if not joined.job.status.is_terminal:
                call.running.add(index)
        _mark(call)
        _require_start(call)
    except BaseException:
        call.close()
        raise
    return call


def start_in_background(wanted: JobRequest, spoken: Spoken, key: str | None, *, follows: bool) -> Call:
    """Submit a job that nobody has to wait for, though the request may follow it. Raises as
    `submitting.submit`.
    """
    if follows:
        following.require_place()
    call = Call([submitting.submit(wanted, key, spoken)], goes_on=True, is_resumable=True, running={0})
    _mark(call)
    return call


def resume(job: Job) -> Call:
    """Follow a job from its beginning. Raises `ServerBusy`."""
    following.require_place()
    return Call([Joined(job, is_new=False)], goes_on=True, is_resumable=True, running={0})


def _mark(call: Call) -> None:
    """Whatever the answer will be, it names the jobs."""
    found = {"x-longhaul-job-id": ",".join(job.id for job in call.jobs)}
    if not any(joined.is_new for joined in call.joined):
        found["Idempotency-Replayed"] = "true"

    def name_jobs(response: Response) -> Response:
        response.headers.update(found)
        return response

    after_this_request(name_jobs)


def _require_start(call: Call) -> None:
    """Refuse at once to wait for what will not begin in time; it is cancelled then, whatever was said."""
    limit = settings().max_sync_seconds
    for joined in call.joined:
        if joined.is_new and (joined.estimated_wait_seconds or 0) > limit:
            call.goes_on = False
            raise SyncTimeout(f"This would wait longer than {limit:g} s for its turn. {INSTEAD}")


def wait(call: Call) -> None:
    """Return when every job has ended; the call is closed then, and whenever this raises `SyncTimeout`,
    `NotServed`, `ServerStopping`, `ClientLeft` or `JobNotFound`.
    """
    sock = wire.of_request(request.environ)
    deadline = clock.monotonic() + settings().max_sync_seconds
    try:
        with following.place():
            for _ in () if call.is_over else call.follow():
                if call.is_over:
                    return
                if sock is not None and wire.is_gone(sock):
                    raise ClientLeft("The client closed the connection.")
                if draining.has_begun():
                    raise ServerStopping(stopping(call))
                if clock.monotonic() >= deadline:
                    raise SyncTimeout(_too_long(call))
    finally:
        call.close()


def stopping(call: Call) -> str:
    if not call.goes_on:
        return "This server is about to stop; send the request again."
    if call.is_resumable:
        return "This server is about to stop, and the response goes on: retrieve it, or stream it again."
    return (
        "This server is about to stop, and the job goes on: send the request again with its Idempotency-Key, or"
        " read it at /v1/jobs."
    )


def _too_long(call: Call) -> str:
    ids = ", ".join(job.id for job in call.jobs)
    fate = "goes on" if call.goes_on else "is cancelled"
    return f"Not done within {settings().max_sync_seconds:g} s: {ids} {fate}. {INSTEAD}"


def _abandon(job_id: str) -> None:
    try:
        ending.request_cancel(job_id)
    except DATABASE_AWAY as error:
        log.warning("call.not_cancelled", job_id=job_id, error=str(error))
    else:
        log.info("call.abandoned", job_id=job_id)
