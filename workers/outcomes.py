"""How an attempt at a job can end: a closed set of values, and the rule that picks one. Pure."""

from dataclasses import dataclass

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


def classify(finish: FinishReason | None, cause: Cause | None) -> Outcome:  # noqa: PLR0911 - a table
    """A finished output counts, whatever else happened at the same moment."""
    match finish, cause:
        case FinishReason.STOP, _:
            return Completed()
        case FinishReason.LENGTH, _:
            return StoppedEarly(IncompleteReason.MAX_OUTPUT_TOKENS)
        case _, Cause.CANCELLED:
            return Cancelled()
        case _, Cause.FIRST_TOKEN_TIMEOUT:
            return StoppedEarly(IncompleteReason.FIRST_TOKEN_TIMEOUT)
        case _, Cause.TOTAL_TIMEOUT:
            return StoppedEarly(IncompleteReason.TOTAL_TIMEOUT)
        case _, Cause.WINDOW_PASSED:
            return StoppedEarly(IncompleteReason.COMPLETION_WINDOW)
        case _, Cause.PREEMPTED:
            return HandedBack(RequeueReason.PREEMPTED)
        case _, Cause.STOPPING:
            return HandedBack(RequeueReason.WORKER_STOPPING)
        case _, Cause.ENGINE_DEAD:
            return EngineDied()
        case _, Cause.LEASE_LOST:
            return Lost()
    return INTERNAL
