"""Running one job in five steps: claim, prepare, generate, classify, settle. A Celery task thread walks them
and mostly waits: tokens are made on the engine loop and recorded by the recorder's threads.
"""

import asyncio
from collections.abc import Collection
from contextlib import aclosing

import structlog
import tenacity
from sqlalchemy.exc import DataError, SQLAlchemyError
from sqlalchemy.orm import Session

from app import clock
from app.db import transaction
from app.dispatch import wake
from app.jobs import lifecycle, log, rescue
from app.jobs.moves import Move
from app.line import placing
from app.redis import RedisError, client
from app.streams import frames, tail
from app.streams.announce import announce
from config.queues import Tier
from config.settings import settings
from workers.engine import Call, EngineBusy, EngineDead, PromptRejected
from workers.outcomes import (
    BUSY,
    INTERNAL,
    Cancelled,
    Completed,
    EngineDied,
    Failed,
    HandedBack,
    Lost,
    Outcome,
    StoppedEarly,
    classify,
)
from workers.preparing import prepare
from workers.process import WorkerProcess
from workers.recorder import prefill_of
from workers.running import Cause, Piece, RunningJob

logger = structlog.get_logger(__name__)


def run_job(worker: WorkerProcess, job_id: str) -> None:
    """Run a job that was rung for, if it is still to be had and there is room for it."""
    with worker.slots.reserved() as place:
        job = claim(worker, job_id, place.tiers if place else ())
        if job is None or place is None:
            return
        worker.slots.fill(place, job)
        with worker.holding(job), structlog.contextvars.bound_contextvars(job_id=job.id, attempt=job.attempt):
            settle(job, generate(worker, job))
    wake()


def claim(worker: WorkerProcess, job_id: str, tiers: Collection[Tier]) -> RunningJob | None:
    """None where another was faster, or where this worker has no room for a job of its tier: then the job waits
    again.
    """
    with transaction() as session:
        move = None
        if tiers and not worker.is_draining:
            move = lifecycle.claim(session, job_id, worker.id, settings().lease_seconds, tiers)
        if move is None:
            placing.decline(session, job_id, worker.id)
    if move is None:
        wake()
        return None
    announce([move.event])
    return RunningJob(move.job, move.event.seq)


def generate(worker: WorkerProcess, job: RunningJob) -> Outcome:
    """Prepare, generate, classify. Whatever the engine or its adapter raises ends here."""
    try:
        call = prepare(worker.engine, job)
        if call is not None:
            worker.loop.run(_generate(worker, job, call))
    except PromptRejected as error:
        return Failed("invalid_prompt", str(error))
    except EngineBusy:
        return BUSY
    except EngineDead as error:
        worker.die(str(error))
        return EngineDied()
    except Exception:
        logger.exception("job.crashed")
        return INTERNAL
    return classify(job.finish, job.cause)


async def _generate(worker: WorkerProcess, job: RunningJob, call: Call) -> None:
    """On the engine loop, until the output is complete or the job is stopped."""
    loop = asyncio.get_running_loop()
    timers = {cause: loop.call_later(seconds, job.stop, cause) for cause, seconds in time_limits(job)}
    try:
        job.bind(loop, asyncio.current_task())
        async with aclosing(worker.engine.generate(call)) as deltas:
            async for delta in deltas:
                is_first = job.first_token_at is None
                if job.feed(delta):
                    return
                if is_first and Cause.FIRST_TOKEN_TIMEOUT in timers:
                    timers[Cause.FIRST_TOKEN_TIMEOUT].cancel()
                worker.recorder.notice(job, is_first=is_first)
    except asyncio.CancelledError:
        if job.cause is None:
            raise
    finally:
        job.is_generating = False
        for timer in timers.values():
            timer.cancel()


def time_limits(job: RunningJob) -> list[tuple[Cause, float]]:
    """What stops the job, in how many seconds from now. Both limits count from the first attempt's start."""
    row = job.job
    assert row.started_at is not None
    limits = []
    first_token_seconds = row.request["timeouts"]["first_token_seconds"]
    if first_token_seconds is not None and row.first_token_at is None and not job.prior_ids:
        waited = (clock.now() - row.started_at).total_seconds()
        limits.append((Cause.FIRST_TOKEN_TIMEOUT, first_token_seconds - waited))
    if row.deadline_at is not None:
        cause = Cause.WINDOW_PASSED if row.deadline_at == row.due_at else Cause.TOTAL_TIMEOUT
        limits.append((cause, (row.deadline_at - clock.now()).total_seconds()))
    return limits


def settle(job: RunningJob, outcome: Outcome) -> None:
    """Write the outcome, with the output that is not stored yet, in one transaction."""
    if isinstance(outcome, Lost):
        logger.info("job.lost")
        return
    with job.store_lock:
        goes_on = isinstance(outcome, HandedBack | EngineDied)
        piece = job.cut() if goes_on else job.cut_last()
        try:
            move = _write(job, outcome)
        except DataError:
            logger.exception("output.refused")
            job.forget_unstored()
            move = _write(job, INTERNAL)
    if move is None:
        logger.info("job.lost")
        return
    _tell(job, piece, move)


@tenacity.retry(
    retry=tenacity.retry_if_exception(
        lambda error: isinstance(error, SQLAlchemyError) and not isinstance(error, DataError)
    ),
    wait=tenacity.wait_random_exponential(multiplier=0.2, max=5),
    before_sleep=lambda state: logger.warning("settle.retried", attempts=state.attempt_number),
)
def _write(job: RunningJob, outcome: Outcome) -> Move | None:
    """None if the lease is gone. While Postgres is away, keep trying: a generation is not thrown away."""
    with transaction() as session:
        # The row first: storing takes a weaker lock, and two sessions that upgrade theirs would deadlock.
        lifecycle.lock(session, job.id)
        segment = job.unstored()
        if segment is not None and not log.store_segments(session, [segment]):
            return None
        return _apply(session, job, outcome)


def _apply(session: Session, job: RunningJob, outcome: Outcome) -> Move | None:  # noqa: PLR0911 - a table
    held = (session, job.id, job.lease_id)
    match outcome:
        case Completed():
            return lifecycle.complete(*held, prefill_of(job))
        case StoppedEarly(reason):
            return lifecycle.stop_early(*held, prefill_of(job), reason)
        case Failed(code, message):
            return lifecycle.fail(*held, prefill_of(job), code, message)
        case Cancelled():
            return lifecycle.cancel(*held, prefill_of(job))
        case HandedBack(reason):
            return lifecycle.hand_back(*held, prefill_of(job), reason)
        case EngineDied():
            lifecycle.note_prefill(session, {job.lease_id: prefill_of(job)})
            return rescue.outlive_engine(session, job.id, job.lease_id, settings().max_attempts)
        case Lost():
            return None


def _tell(job: RunningJob, piece: Piece | None, move: Move) -> None:
    """Followers get the last of the output and the event; a failure costs them a second."""
    try:
        tail.close(client(), job.id, [*_frames(piece), frames.of_event(move.event)])
    except (RedisError, OSError) as error:
        logger.warning("announce.failed", error=str(error))


def _frames(piece: Piece | None) -> list[frames.Frame]:
    if piece is None:
        return []
    return [frames.delta(piece.seq, piece.seq, piece.offset, piece.text, piece.logprobs, piece.parts)]
