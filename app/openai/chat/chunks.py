"""A streamed chat completion: what its choices' logs become, piece by piece. It never sees a connection."""

from collections.abc import Sequence
from typing import Any

from app.jobs.parts import REASONING, TEXT, Part
from app.jobs.tables import Job
from app.openai.chat.completion import head, logprobs
from app.openai.choices import Ending
from app.openai.streamed import Choice, Streamed


class Projector(Streamed):
    def __init__(self, jobs: Sequence[Job], *, include_usage: bool = False) -> None:
        super().__init__(
            jobs, head(jobs[0], "chat.completion.chunk"), per_prompt=len(jobs), include_usage=include_usage
        )

    def begin(self, index: int) -> Choice:
        opening = {"role": "assistant", "content": "", "refusal": None}
        return _choice(index, opening, logprobs(self._jobs[index], []))

    def tell(self, index: int, part: Part) -> Choice | None:
        if part["type"] == TEXT:
            entries = part.get("logprobs") or []
            if not part["text"] and not entries:
                return None
            return _choice(index, {"content": part["text"]}, logprobs(self._jobs[index], entries))
        if part["type"] == REASONING:
            return _choice(index, {"reasoning_content": part["text"]}) if part["text"] else None
        return _choice(index, {"tool_calls": [_call(part)]})

    def end(self, index: int, ending: Ending, *, has_calls: bool) -> Choice:
        return {**_choice(index, {}), "finish_reason": ending.finish_reason(has_calls=has_calls)}


def _choice(index: int, delta: dict[str, Any], entries: dict[str, Any] | None = None) -> Choice:
    return {"index": index, "delta": delta, "logprobs": entries, "finish_reason": None}


def _call(part: Part) -> dict[str, Any]:
    """Id and name come once, where a call begins: clients join whatever comes again."""
    function = {"arguments": part.get("arguments", "")}
    if "name" not in part:
        return {"index": part["index"], "function": function}
    function = {"name": part["name"], **function}
    return {"index": part["index"], "id": part["id"], "type": "function", "function": function}
