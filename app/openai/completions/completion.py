"""A completion: its choices' jobs once all have ended. Its text is the model's own, markup included."""

from collections.abc import Sequence
from typing import Any

from app.jobs.log import Output
from app.jobs.tables import Job
from app.openai import ids
from app.openai.choices import Ending, usage
from app.openai.completions.logprobs import Offsets


def head(first: Job) -> dict[str, Any]:
    """What every object of a call says, by the job of its first choice."""
    created = int(first.created_at.timestamp())
    return {"id": ids.cmpl_id(first.id), "object": "text_completion", "created": created, "model": first.model}


def describe(jobs: Sequence[Job], outputs: Sequence[Output]) -> dict[str, Any]:
    """For jobs of which none has an `Ending.failure`."""
    endings = [Ending.of_job(job) for job in jobs]
    return {
        **head(jobs[0]),
        "choices": [
            {
                "index": index,
                "text": echoed(job) + output.text,
                "logprobs": Offsets(job).of(output.logprobs),
                "finish_reason": ending.finish_reason(),
            }
            for index, (job, ending, output) in enumerate(zip(jobs, endings, outputs, strict=True))
        ],
        "usage": usage(endings, 0, per_prompt=per_prompt(jobs)),
    }


def per_prompt(jobs: Sequence[Job]) -> int:
    """How many choices each prompt has."""
    return int((jobs[0].echo or {}).get("n", 1))


def echoed(job: Job) -> str:
    """The prompt, where it is to be said again."""
    return str(job.request["input"]) if (job.echo or {}).get("echo") else ""
