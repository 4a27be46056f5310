"""A job as Anthropic's message: blocks of what it thought, said and called, in that order of their coming."""

from collections.abc import Iterable
from typing import Any, Final

import orjson

from app.anthropic.blocks import NOT_JSON
from app.anthropic.errors import FAILED, INVALID
from app.anthropic.ids import message_id
from app.jobs import parts as parts_of_output
from app.jobs.log import Output
from app.jobs.parts import REASONING, TEXT, Part
from app.jobs.states import IncompleteReason, Status
from app.jobs.tables import Job
from config.queues import Tier

Json = dict[str, Any]

_OF_THE_CLIENT: Final = frozenset({"invalid_prompt"})


def describe(job: Job, output: Output) -> Json:
    """One that has ended, or what there is of it."""
    parts = output.parts if output.parts is not None else _plain(output.text)
    content = list(_blocks(parts))
    return {
        "id": message_id(job.id),
        "type": "message",
        "role": "assistant",
        "model": job.model,
        "content": content,
        "stop_reason": _stop_reason(job, content),
        "stop_sequence": None,
        "usage": _usage(job, parts_of_output.reasoning_tokens(parts)),
    }


def failure(job: Job) -> tuple[str, str]:
    """What Anthropic calls the error of a job that failed, and its message."""
    kind = INVALID if job.error_code in _OF_THE_CLIENT else FAILED
    return kind, job.error_message or "The job failed."


def _plain(text: str) -> list[Part]:
    return [parts_of_output.text(text)] if text else []


def _blocks(parts: Iterable[Part]) -> Iterable[Json]:
    """Neighbours of a kind as one block; a call may come in pieces, and others' pieces between them."""
    made: list[Json] = []
    written: dict[int, list[str]] = {}
    calls: dict[int, Json] = {}
    for part in parts:
        kind = part["type"]
        if kind == TEXT:
            _add(made, {"type": "text", "text": ""}, "text", part["text"])
        elif kind == REASONING:
            _add(made, {"type": "thinking", "thinking": "", "signature": ""}, "thinking", part["text"])
        else:
            index = part["index"]
            if index not in calls:
                calls[index] = {"type": "tool_use", "id": part.get("id", ""), "name": part.get("name", "")}
                made.append(calls[index])
            written.setdefault(index, []).append(part.get("arguments", ""))
    for index, call in calls.items():
        call["input"] = _input("".join(written[index]))
    # A model's blank lines around its calls are nothing that it said.
    return [block for block in made if block["type"] != "text" or block["text"].strip() or len(made) == 1]


def _add(made: list[Json], block: Json, field: str, text: str) -> None:
    if not made or made[-1]["type"] != block["type"]:
        made.append(block)
    made[-1][field] += text


def _input(written: str) -> Json:
    """Of a call that was cut off, or that is no object, the model's own words."""
    if not written.strip():
        return {}
    try:
        found = orjson.loads(written)
    except orjson.JSONDecodeError:
        found = None
    return found if isinstance(found, dict) else {NOT_JSON: written}


def _stop_reason(job: Job, content: list[Json]) -> str | None:
    if job.status is Status.COMPLETED:
        return "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn"
    return "max_tokens" if job.incomplete_reason == IncompleteReason.MAX_OUTPUT_TOKENS else None


def _usage(job: Job, reasoning_tokens: int) -> Json:
    return {
        "input_tokens": job.input_tokens - job.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": job.cached_tokens,
        "output_tokens": job.output_tokens,
        "output_tokens_details": {"thinking_tokens": reasoning_tokens},
        "service_tier": "batch" if job.tier is Tier.BATCH else "standard",
    }
