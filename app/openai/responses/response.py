"""The Response object, said of a job: from its row and output, or from what a stream has gathered. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.jobs.log import Output
from app.jobs.moves import usage_of
from app.jobs.parts import TEXT, reasoning_tokens
from app.jobs.states import IncompleteReason, Status
from app.jobs.tables import Job
from app.openai import ids
from app.openai.fold import parts_of_job
from app.openai.responses.output import Items, items_of, status_of_last

# OpenAI has no word for a job whose time to start passed.
_STATUS: Final = {Status.EXPIRED: Status.FAILED}
_ERROR_CODES: Final = {"invalid_prompt": "invalid_prompt"}
_EXPIRED: Final = "It could not start before its deadline passed."


@dataclass(frozen=True, slots=True)
class Standing:
    """How it stands with a job: its status and, once ended, what came of it. `usage` is as in its events."""

    status: Status
    error: Mapping[str, Any] | None = None
    incomplete_reason: str | None = None
    usage: Mapping[str, Any] | None = None
    reasoning_tokens: int = 0
    finished_at: datetime | None = None


def describe(job: Job, output: Output | None = None) -> dict[str, Any]:
    """The whole Response of a job, with its output so far."""
    parts = parts_of_job(output) if output is not None else []
    failed = {"code": job.error_code, "message": job.error_message} if job.error_code else None
    standing = Standing(
        job.status,
        failed,
        job.incomplete_reason,
        usage_of(job),
        reasoning_tokens(parts),
        job.finished_at,
    )
    return compose(job, standing, output_of(items_of(job.id, parts), job.status))


def output_of(items: Items, status: Status) -> list[dict[str, Any]]:
    """Output items as they stand while, or after, a job is in `status`."""
    if status is Status.COMPLETED and items.lacks_an_answer:
        items.open(TEXT)
    return items.describe(status_of_last(status))


def compose(job: Job, standing: Standing, output: list[dict[str, Any]]) -> dict[str, Any]:
    """A Response; optional fields that may not be null are left out."""
    request, echo = job.request, job.echo or {}
    named = {
        name: echo[name]
        for name in ("user", "prompt_cache_key", "safety_identifier")
        if echo.get(name) is not None
    }
    status = _STATUS.get(standing.status, standing.status)
    done_at = standing.finished_at if status is Status.COMPLETED else None
    return {
        "id": ids.resp_id(job.id),
        "object": "response",
        "created_at": int(job.created_at.timestamp()),
        "status": status.value,
        "background": echo.get("background", False),
        "completed_at": int(done_at.timestamp()) if done_at else None,
        "error": _error(standing),
        "incomplete_details": _incomplete_details(standing),
        "instructions": request.get("instructions"),
        "max_output_tokens": echo.get("max_output_tokens"),
        "max_tool_calls": None,
        "model": job.model,
        "output": output,
        "parallel_tool_calls": request["parallel_tool_calls"],
        "previous_response_id": echo.get("previous_response_id"),
        "reasoning": echo.get("reasoning") or {"effort": None, "summary": None},
        "service_tier": echo.get("service_tier", "default"),
        "store": echo.get("store", True),
        "temperature": request["temperature"],
        "text": echo.get("text") or {"format": {"type": "text"}},
        "tool_choice": echo.get("tool_choice") or request["tool_choice"],
        "tools": echo.get("tools") or request["tools"],
        "top_logprobs": echo.get("top_logprobs") or 0,
        "top_p": request["top_p"],
        "truncation": echo.get("truncation", "disabled"),
        **({"usage": _usage(standing)} if standing.status.is_terminal else {}),
        **named,
        "metadata": job.labels,
    }


def _error(standing: Standing) -> dict[str, Any] | None:
    if standing.status is Status.EXPIRED:
        return {"code": "server_error", "message": _EXPIRED}
    if standing.status is not Status.FAILED or standing.error is None:
        return None
    code = _ERROR_CODES.get(standing.error["code"], "server_error")
    return {"code": code, "message": standing.error["message"]}


def _incomplete_details(standing: Standing) -> dict[str, str] | None:
    """OpenAI has no word for the other reasons."""
    if standing.status is not Status.INCOMPLETE:
        return None
    is_length = standing.incomplete_reason == IncompleteReason.MAX_OUTPUT_TOKENS
    return {"reason": IncompleteReason.MAX_OUTPUT_TOKENS.value} if is_length else {}


def _usage(standing: Standing) -> dict[str, Any]:
    counted = standing.usage or {}
    cached = counted.get("input_tokens_details", {}).get("cached_tokens", 0)
    return {
        "input_tokens": counted.get("input_tokens", 0),
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": counted.get("output_tokens", 0),
        "output_tokens_details": {"reasoning_tokens": standing.reasoning_tokens},
        "total_tokens": counted.get("total_tokens", 0),
    }
