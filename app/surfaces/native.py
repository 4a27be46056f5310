"""A job as `/v1/jobs` says it, but for what only a running server knows: its place in the line, why it waits,
its addresses.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from app.jobs.log import Output
from app.jobs.moves import error, incomplete_details, usage_of
from app.jobs.parts import Part
from app.jobs.tables import Job
from app.openai.fold import fold
from config.catalogue import catalogue, currency


def reference(job: Job) -> dict[str, Any]:
    """Which job it is."""
    return {
        "id": job.id,
        "object": "job",
        "status": job.status,
        "created_at": seconds(job.created_at),
        "model": job.model,
        "tier": job.tier,
    }


def describe(job: Job, output: Output | None = None) -> dict[str, Any]:
    """A job with its output so far, or without it."""
    usage = _usage(job, output)
    return {
        **reference(job),
        "kind": job.kind,
        "session_id": job.session_id,
        "completion_window": job.completion_window,
        "due_at": seconds(job.due_at),
        "price_factor": float(job.price_factor),
        "attempt": job.attempt,
        "preemptions": job.preemptions,
        "started_at": seconds(job.started_at),
        "first_token_at": round(job.first_token_at.timestamp(), 3) if job.first_token_at else None,
        "finished_at": seconds(job.finished_at),
        "expires_at": seconds(job.expires_at),
        "cancel_requested_at": seconds(job.cancel_requested_at),
        "metadata": job.labels,
        "webhook_url": job.webhook_url,
        "batch": _batch(job),
        "output": None if output is None else _output(job, output),
        "usage": usage,
        "cost": _cost(job, usage["output_tokens"]),
        "error": error(job),
        "incomplete_details": incomplete_details(job),
    }


def seconds(at: datetime | None) -> int | None:
    """Unix seconds."""
    return None if at is None else int(at.timestamp())


def _batch(job: Job) -> dict[str, Any] | None:
    if job.batch_id is None:
        return None
    return {"id": job.batch_id, "line": job.line, "custom_id": job.custom_id}


def _output(job: Job, output: Output) -> dict[str, Any]:
    asked = job.request.get("logprobs") is not None
    return {
        "text": output.text,
        "message": None if output.parts is None else _message(output.parts),
        "logprobs": list(output.logprobs) if asked else None,
    }


def _message(parts: Sequence[Part]) -> dict[str, Any]:
    folded = fold(parts)
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in folded.calls]
    return {"content": folded.content, "reasoning": folded.reasoning, "tool_calls": calls}


def _usage(job: Job, output: Output | None) -> dict[str, Any]:
    """A running job's output counts as far as it is stored."""
    counted = usage_of(job)
    if output is not None and not job.status.is_terminal:
        counted["output_tokens"] = len(output.token_ids)
        counted["total_tokens"] = job.input_tokens + len(output.token_ids)
    return counted


def _cost(job: Job, output_tokens: int) -> dict[str, str] | None:
    """By today's price of its model, times what was agreed at its submission."""
    spec = catalogue().get(job.model)
    if spec is None or spec.price is None:
        return None
    amount = job.price_factor * spec.price.of(job.input_tokens, job.cached_tokens, output_tokens)
    return {"amount": plain(amount), "currency": currency()}


def plain(amount: Decimal) -> str:
    """Digits alone, and none that say nothing."""
    return f"{amount.normalize():f}"
