"""A streamed completion: what its choices' logs become, piece by piece. It never sees a connection."""

from collections.abc import Sequence
from typing import Any

from app.jobs.parts import Part
from app.jobs.tables import Job
from app.openai.choices import Ending
from app.openai.completions.completion import echoed, head, per_prompt
from app.openai.completions.logprobs import Offsets
from app.openai.streamed import Choice, Streamed


class Projector(Streamed):
    reads_raw = True

    def __init__(self, jobs: Sequence[Job], *, include_usage: bool = False) -> None:
        super().__init__(jobs, head(jobs[0]), per_prompt=per_prompt(jobs), include_usage=include_usage)
        self._offsets = [Offsets(job) for job in jobs]

    def begin(self, index: int) -> Choice | None:
        prompt = echoed(self._jobs[index])
        return _choice(index, prompt) if prompt else None

    def tell(self, index: int, part: Part) -> Choice | None:
        entries = part.get("logprobs") or []
        if not part["text"] and not entries:
            return None
        return _choice(index, part["text"], self._offsets[index].of(entries))

    def end(self, index: int, ending: Ending, *, has_calls: bool) -> Choice:  # noqa: ARG002 - a prompt's text calls nothing
        return {**_choice(index, ""), "finish_reason": ending.finish_reason()}


def _choice(index: int, text: str, logprobs: dict[str, Any] | None = None) -> Choice:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": None}
