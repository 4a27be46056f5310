"""Names of queues and Celery functions: with the catalogue, the only contract between `app` and `workers`.
The queues of one model sort in the order in which a worker should look at them (`queue_order_strategy`).
"""

from enum import StrEnum
from typing import Final

RUN_JOB: Final = "longhaul.run_job"


class Tier(StrEnum):
    INTERACTIVE = "interactive"
    BATCH = "batch"


_RANK: Final = {Tier.INTERACTIVE: "q0", Tier.BATCH: "q1"}


def queue_name(model: str, tier: Tier) -> str:
    return f"{_RANK[tier]}.{tier}.{model}"


def queues_of(model: str) -> list[str]:
    """The queues that a worker for `model` listens to, first look first."""
    return [queue_name(model, tier) for tier in Tier]
