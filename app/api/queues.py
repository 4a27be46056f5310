"""`/v1/queues`: how every line stands, by model and tier. The numbers to scale workers by, and what a client
may want to know before it submits.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from flask import Response, jsonify
from pydantic import BaseModel, Field

from app import clock
from app.api import serving
from app.api.auth import protected
from app.api.describe import describe
from app.gate.shedding import Shedding, find_shedding
from app.jobs.errors import ModelNotFound
from app.line.lines import NEVER
from app.line.tables import LineState
from app.redis import quick_client
from config.catalogue import ModelSpec, catalogue, price_factors
from config.queues import Tier, Window

blueprint = protected("queues")


class QueueDepth(BaseModel):
    jobs: int
    tokens: int = Field(description="Prompts, and the most that may be made.")


class QueueDrain(BaseModel):
    jobs_per_second: float = Field(description="That ended lately.")
    tokens_per_second: float = Field(description="What the line gets shorter by while its slots are busy.")


class QueueShedding(BaseModel):
    is_on: bool = Field(description="Whether submissions are refused until the line is shorter.")
    transitions: int = Field(description="How often that began or ended.")


class QueueWindow(BaseModel):
    window: Window
    price_factor: float


class QueueLimits(BaseModel):
    max_jobs: int
    max_tokens: int
    max_wait_seconds: float


class QueueView(BaseModel):
    model: str
    tier: Tier
    state: LineState = Field(
        description="Paused: it takes jobs and starts none. Draining: the other way round."
    )
    depth: QueueDepth
    oldest_wait_seconds: float | None = Field(description="Of the job that waits longest.")
    drain: QueueDrain
    shedding: QueueShedding | None = Field(description="Null while it cannot be known: Redis is away.")
    running: int
    slots: int = Field(description="Of all workers; the tiers share them.")
    free_slots: int = Field(description="How many more jobs could start now.")
    workers: int
    estimate_error_seconds: float | None = Field(
        description="Median of how far the start foretold at submission was from the real one."
    )
    measured_at: float | None = Field(description="Unix seconds; null where nothing was measured yet.")
    completion_windows: list[QueueWindow]
    limits: QueueLimits


class QueueList(BaseModel):
    object: Literal["list"] = "list"
    data: list[QueueView]


@blueprint.get("/v1/queues")
@describe(
    "Show the lines",
    answers={200: (QueueList, "Every model and tier, also where nothing waits.")},
    errors=(401, 503),
)
def index() -> Response:
    return jsonify(object="list", data=_views(list(catalogue().values())))


@blueprint.get("/v1/queues/<path:name>")
@describe("Show the lines of a model", answers={200: (QueueList, "One for each tier.")}, errors=(401, 404, 503))
def show(name: str) -> Response:
    if name not in catalogue():
        raise ModelNotFound(name, list(catalogue()))
    return jsonify(object="list", data=_views([catalogue()[name]]))


def _views(specs: Sequence[ModelSpec]) -> list[dict[str, Any]]:
    shedding = find_shedding(quick_client(), [(spec.name, tier) for spec in specs for tier in Tier])
    now = clock.now()
    return [_view(spec, tier, shedding.get((spec.name, tier)), now) for spec in specs for tier in Tier]


def _view(spec: ModelSpec, tier: Tier, shedding: Shedding | None, now: datetime) -> dict[str, Any]:
    line = serving.line_of(spec.name, tier)
    workers = serving.workers_of(spec.name)
    limits = spec.line[tier]
    return {
        "model": spec.name,
        "tier": tier,
        "state": line.state,
        "depth": {"jobs": line.jobs, "tokens": line.tokens},
        "oldest_wait_seconds": max(0.0, round((now - line.oldest_at).total_seconds(), 3))
        if line.oldest_at
        else None,
        "drain": {"jobs_per_second": line.jobs_per_second, "tokens_per_second": line.tokens_per_second},
        "shedding": shedding and {"is_on": shedding.is_on, "transitions": shedding.transitions},
        "running": line.running,
        "slots": sum(worker.slots for worker in workers),
        "free_slots": line.free_slots,
        "workers": len(workers),
        "estimate_error_seconds": line.estimate_error_seconds,
        "measured_at": None if line.measured_at == NEVER else round(line.measured_at.timestamp(), 3),
        "completion_windows": [
            {"window": window, "price_factor": float(factor)}
            for window, factor in price_factors()[tier].items()
        ],
        "limits": {
            "max_jobs": limits.max_jobs,
            "max_tokens": limits.max_tokens,
            "max_wait_seconds": limits.max_wait_seconds,
        },
    }
