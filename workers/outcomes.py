"""How an attempt at a job can end: a closed set of values, and the rule that picks one. Pure."""

from dataclasses import dataclass
from typing import Final

from app.jobs.states import IncompleteReason, RequeueReason
from workers.engine import FinishReason
from workers.running import Cause


@dataclass(frozen=True, slots=True)
class Completed:
    pass


@dataclass(frozen=True, slots=True)
class StoppedEarly:
    reason: IncompleteReason


@dataclass(frozen=True, slots=True)
class Failed:
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    pass


@dataclass(frozen=True, slots=True)
class HandedBack:
    """Another attempt goes on where this one stopped."""

    reason: RequeueReason


@dataclass(frozen=True, slots=True)
class EngineDied:
    """As `HandedBack`, unless this job looks like what kills engines."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Another owns the job now: write nothing."""


Outcome = Completed | StoppedEarly | Failed | Cancelled | HandedBack | EngineDied | Lost

BUSY = HandedBack(RequeueReason.ENGINE_BUSY)
INTERNAL = Failed("internal_error", "The worker could not run this job.")


_BY_CAUSE: Final[dict[Cause, Outcome]] = {
    Cause.CANCELLED: Cancelled(),
    Cause.FIRST_TOKEN_TIMEOUT: StoppedEarly(IncompleteReason.FIRST_TOKEN_TIMEOUT),
    Cause.TOTAL_TIMEOUT: StoppedEarly(IncompleteReason.TOTAL_TIMEOUT),
    Cause.WINDOW_PASSED: StoppedEarly(IncompleteReason.COMPLETION_WINDOW),
    Cause.STOPPING: HandedBack(RequeueReason.WORKER_STOPPING),
    Cause.PREEMPTED: HandedBack(RequeueReason.PREEMPTED),
    Cause.ENGINE_DEAD: EngineDied(),
    Cause.LEASE_LOST: Lost(),
}


def classify(finish: FinishReason | None, cause: Cause | None) -> Outcome:
    """A finished output counts, whatever else happened at the same moment."""
    if finish is FinishReason.STOP:
        return Completed()
    if finish is FinishReason.LENGTH:
        return StoppedEarly(IncompleteReason.MAX_OUTPUT_TOKENS)
    return INTERNAL if cause is None else _BY_CAUSE.get(cause, INTERNAL)
