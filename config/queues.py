"""Names of tiers, windows, queues and Celery functions: with the catalogue, the only contract between `app` and
`workers`. Each worker process has its own queues, since whoever rings knows which worker has room; they sort in
the order in which it should look at them (`queue_order_strategy`).
"""

from enum import StrEnum
from typing import Final

RUN_JOB: Final = "longhaul.run_job"


class Tier(StrEnum):
    INTERACTIVE = "interactive"
    BATCH = "batch"


class Window(StrEnum):
    """Completion windows: by when a job is wanted, counted from its submission."""

    SOONEST = "soonest"
    ONE_HOUR = "1h"
    TWO_HOURS = "2h"
    EIGHT_HOURS = "8h"
    ONE_DAY = "24h"

    @property
    def seconds(self) -> int | None:
        """How long it is; None has no end."""
        return None if self is Window.SOONEST else int(self.removesuffix("h")) * 3600


_RANK: Final = {Tier.INTERACTIVE: "q0", Tier.BATCH: "q1"}


def queue_name(worker_id: str, tier: Tier) -> str:
    return f"{_RANK[tier]}.{tier}.{worker_id}"


def queues_of(worker_id: str) -> list[str]:
    """The queues of one worker process, first look first."""
    return [queue_name(worker_id, tier) for tier in Tier]
