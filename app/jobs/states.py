"""The lifecycle as a table: which status may become which, and what each change is called in the log. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Status(StrEnum):
    """OpenAI's words for a response's status, exactly; `expired` as in its batches."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"  # stopped early with a usable partial
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"  # its time to start passed

    @property
    def is_terminal(self) -> bool:
        return self in TERMINAL

    @property
    def event_type(self) -> str:
        """What the log calls the change into this status."""
        return f"job.{self}"


TERMINAL: Final = frozenset(
    {Status.COMPLETED, Status.INCOMPLETE, Status.FAILED, Status.CANCELLED, Status.EXPIRED}
)
TERMINAL_EVENT_TYPES: Final = frozenset(status.event_type for status in TERMINAL)


class IncompleteReason(StrEnum):
    MAX_OUTPUT_TOKENS = "max_output_tokens"
    FIRST_TOKEN_TIMEOUT = "first_token_timeout"  # noqa: S105 - not a password
    TOTAL_TIMEOUT = "total_timeout"
    COMPLETION_WINDOW = "completion_window"  # it had started, and the window passed


class RequeueReason(StrEnum):
    WORKER_LOST = "worker_lost"  # its lease ran out
    WORKER_STOPPING = "worker_stopping"  # a deploy: checkpointed and handed back
    ENGINE_DEAD = "engine_dead"
    ENGINE_BUSY = "engine_busy"
    PREEMPTED = "preempted"  # an interactive job needed the slot


@dataclass(frozen=True, slots=True)
class Transition:
    sources: frozenset[Status]
    target: Status


def _move(target: Status, *sources: Status) -> Transition:
    return Transition(frozenset(sources), target)


CLAIM: Final = _move(Status.IN_PROGRESS, Status.QUEUED)
REQUEUE: Final = _move(Status.QUEUED, Status.IN_PROGRESS)
COMPLETE: Final = _move(Status.COMPLETED, Status.IN_PROGRESS)
# From queued too: a job between two attempts whose total time has passed.
STOP_EARLY: Final = _move(Status.INCOMPLETE, Status.IN_PROGRESS, Status.QUEUED)
FAIL: Final = _move(Status.FAILED, Status.IN_PROGRESS)
CANCEL: Final = _move(Status.CANCELLED, Status.IN_PROGRESS, Status.QUEUED)
EXPIRE: Final = _move(Status.EXPIRED, Status.QUEUED)

TRANSITIONS: Final = {
    "claim": CLAIM,
    "requeue": REQUEUE,
    "complete": COMPLETE,
    "stop_early": STOP_EARLY,
    "fail": FAIL,
    "cancel": CANCEL,
    "expire": EXPIRE,
}
