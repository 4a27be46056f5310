"""The lifecycle of a batch, in OpenAI's words. Pure."""

from enum import StrEnum
from typing import Final


class BatchStatus(StrEnum):
    VALIDATING = "validating"
    FAILED = "failed"  # its file cannot be run
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"  # every line has ended; files are being written
    COMPLETED = "completed"
    EXPIRED = "expired"  # the window ended before some line had
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        return self in TERMINAL_BATCHES

    @property
    def event_type(self) -> str:
        """What a batch's log calls the change into this status."""
        return f"batch.{self}"


TERMINAL_BATCHES: Final = frozenset(
    {BatchStatus.FAILED, BatchStatus.COMPLETED, BatchStatus.EXPIRED, BatchStatus.CANCELLED}
)
PROGRESS: Final = "batch.progress"


class OnInvalid(StrEnum):
    """What becomes of a batch that has lines which cannot be run."""

    FAIL = "fail"
    SKIP = "skip"  # they count as failed, and the others run
