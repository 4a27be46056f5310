"""The types of events that webhooks tell of, and which changes in the logs of jobs and batches they stand for.
Pure.
"""

from collections.abc import Collection, Iterable
from typing import Final

from app.jobs.states import TERMINAL_EVENT_TYPES, Status
from app.webhooks.errors import EventTypeUnknown

EVERYTHING: Final = "*"
TEST: Final = "webhook.test"  # sent when asked for, whatever an endpoint wants
DISABLED: Final = "webhook_endpoint.disabled"
BUDGET: Final = "budget.threshold"

# A job that came as a response ends under OpenAI's types, too; it has none for one that never started.
RESPONSE_TYPES: Final = {
    Status.COMPLETED.event_type: "response.completed",
    Status.INCOMPLETE.event_type: "response.incomplete",
    Status.FAILED.event_type: "response.failed",
    Status.EXPIRED.event_type: "response.failed",
    Status.CANCELLED.event_type: "response.cancelled",
}
ENDED_BATCHES: Final = ("batch.completed", "batch.failed", "batch.expired", "batch.cancelled")
BATCH_TYPES: Final = (
    "batch.validating",
    "batch.in_progress",
    "batch.progress",
    "batch.finalizing",
    "batch.cancelling",
    *ENDED_BATCHES,
)
# What an endpoint that names no types wants: whatever has ended, and what asks for a person.
USUAL: Final = (*sorted({*TERMINAL_EVENT_TYPES, *RESPONSE_TYPES.values()}), *ENDED_BATCHES, BUDGET, DISABLED)

# Every type that can be asked for, with the types of the logs behind it.
LOG_TYPES: Final[dict[str, frozenset[str]]] = {
    **{status.event_type: frozenset({status.event_type}) for status in Status},
    **{
        named: frozenset(log_type for log_type, other in RESPONSE_TYPES.items() if other == named)
        for named in RESPONSE_TYPES.values()
    },
    **{batch_type: frozenset({batch_type}) for batch_type in BATCH_TYPES},
    BUDGET: frozenset(),
    DISABLED: frozenset(),
}
GROUPS: Final = tuple(sorted({f"{name.partition('.')[0]}.*" for name in LOG_TYPES}))


def require_known(wanted: Iterable[str], param: str = "events") -> None:
    """Types and groups of types. Raises `EventTypeUnknown`, naming `param`."""
    for name in wanted:
        if name not in LOG_TYPES and name not in GROUPS and name != EVERYTHING:
            raise EventTypeUnknown(param, name, [*LOG_TYPES, *GROUPS, EVERYTHING])


def wants(wanted: Collection[str], named: str) -> bool:
    """Whether who wants these is to be told of an event of type `named`."""
    return named in wanted or f"{named.partition('.')[0]}.*" in wanted or EVERYTHING in wanted


def log_types(wanted: Collection[str]) -> frozenset[str]:
    """Which entries of logs are to become messages for who wants these."""
    return frozenset().union(*(types for named, types in LOG_TYPES.items() if wants(wanted, named)))
