"""A chat completion: its choices' jobs once all have ended."""

from collections.abc import Sequence
from typing import Any

from app.jobs.log import Output
from app.jobs.tables import Job
from app.openai import fold, ids
from app.openai.choices import Ending, usage
from app.openai.extras import service_tier_of
from app.openai.fold import Folded


def head(first: Job, kind: str) -> dict[str, Any]:
    """What every object of a call says, by the job of its first choice."""
    return {
        "id": ids.chat_id(first.id),
        "object": kind,
        "created": int(first.created_at.timestamp()),
        "model": first.model,
        "service_tier": service_tier_of(first.tier),
    }


def describe(jobs: Sequence[Job], outputs: Sequence[Output]) -> dict[str, Any]:
    """For jobs of which none has an `Ending.failure`."""
    endings = [Ending.of_job(job) for job in jobs]
    said = [fold.fold(fold.parts_of_job(output)) for output in outputs]
    return {
        **head(jobs[0], "chat.completion"),
        "choices": [
            _choice(index, job, ending, message)
            for index, (job, ending, message) in enumerate(zip(jobs, endings, said, strict=True))
        ],
        "usage": usage(endings, sum(message.reasoning_tokens for message in said), per_prompt=len(jobs)),
    }


def wants_logprobs(job: Job) -> bool:
    return job.request.get("logprobs") is not None


def logprobs(job: Job, entries: Sequence[Any]) -> dict[str, Any] | None:
    return {"content": list(entries), "refusal": None} if wants_logprobs(job) else None


def _choice(index: int, job: Job, ending: Ending, said: Folded) -> dict[str, Any]:
    return {
        "index": index,
        "message": _message(said),
        "logprobs": logprobs(job, said.content_logprobs),
        "finish_reason": ending.finish_reason(has_calls=bool(said.calls)),
    }


def _message(said: Folded) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.content, "refusal": None}
    if said.reasoning:
        message["reasoning_content"] = said.reasoning
    if said.calls:
        message["content"] = said.content or None
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in said.calls
        ]
    return message
