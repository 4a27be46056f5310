"""What the simulated engine says to a call: the prompt's cues, and the writer that follows them. It knows
nothing of time or slots.
"""

import json
import os
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from app.jobs.prompts import ToolUse
from app.tokens.simulated import EOS, ROLES, THINK, THINK_END, encode_text, write_call
from workers.engine import Call, PromptRejected, Sampling
from workers.engine.simulated_json import smallest_instance
from workers.engine.simulated_words import VOCABULARY, Writer

_CUE = re.compile(r"\[\[(?:call=([\w.-]+)\s*|(\w+)(?:=(.*?))?\]\])", re.DOTALL)
_SAID = ("say", "think", "call")


@dataclass(frozen=True, slots=True)
class Cues:
    """What a prompt asks for: its `script`, in order, of (say | think | call, text), and the rest by name."""

    script: Sequence[tuple[str, str]] = ()
    named: dict[str, str] = field(default_factory=dict)


def find_cues(call: Call) -> Cues:
    """Those of the last user message, or of a prompt that has none."""
    ids = list(call.prompt_ids)
    begins = [at for at, token in enumerate(ids) if token == ROLES["user"]]
    begin = begins[-1] if begins else 0
    end = ids.index(EOS, begin) if begins else len(ids)
    found = list(_read_cues(VOCABULARY.decode(ids[begin:end])))
    script = [(name, text) for name, text in found if name in _SAID]
    if "call" in dict(script):
        first_after = max(at for at, (name, _) in enumerate(script, 1) if name == "call")
        has_results = ROLES["tool"] in ids[end:]
        script = script[first_after:] if has_results else script[:first_after]
    return Cues(script, dict(found))


def _read_cues(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while (cue := _CUE.search(text, at)) is not None:
        at = cue.end()
        if cue[1] is None:
            yield cue[2], cue[3] or ""
            continue
        end = _end_of_json(text, at)
        yield "call", write_call(cue[1], text[at:end].strip() or "{}")
        at = end


def _end_of_json(text: str, begin: int) -> int:
    """Where it ends; what is no JSON, at the closing brackets."""
    try:
        return json.JSONDecoder().raw_decode(text, begin)[1]
    except ValueError:
        end = text.find("]]", begin)
        return end if end >= 0 else len(text)


def open_writer(call: Call, cues: Cues) -> Writer:
    """Where earlier attempts left off. Raises `PromptRejected` for a schema that cannot be followed."""
    sampling, named = call.sampling, cues.named
    script = encode_text(_script(sampling, cues))
    ends_at = int(named["tokens"]) if "tokens" in named else len(script) or None
    if ends_at is not None:
        ends_at = None if sampling.ignore_eos else max(ends_at, sampling.min_tokens)
    writer = Writer(_first_state(call), script, ends_at, emoji="emoji" in named)
    writer.go_on_after(call.prior_ids)
    return writer


def _script(sampling: Sampling, cues: Cues) -> str:
    use = sampling.tool_use
    thought = "".join(f"{THINK}{text}{THINK_END}" for name, text in cues.script if name == "think")
    calls = [text for name, text in cues.script if name == "call"]
    if use is not None and use.is_forced:
        calls = calls or [write_call(*_smallest_call(use))]
        return thought + "\n".join(calls if use.is_parallel else calls[:1])
    if calls and use is not None:
        written = [f"{text}\n" if name == "call" else text for name, text in cues.script if name != "think"]
        return thought + "".join(written).rstrip("\n")
    if sampling.json_schema is not None:
        return thought + json.dumps(_smallest(sampling.json_schema), ensure_ascii=False)
    if sampling.json_object:
        return thought + "{}"
    return thought + "".join(text for name, text in cues.script if name == "say")


def _smallest_call(use: ToolUse) -> tuple[str, Any]:
    functions = [tool["function"] for tool in use.tools]
    function = next(one for one in functions if not use.is_named or one["name"] == use.choice)
    return function["name"], _smallest(function["parameters"])


def _smallest(schema: dict[str, Any]) -> Any:
    try:
        return smallest_instance(schema)
    except ValueError as error:
        raise PromptRejected(f"The engine cannot follow this JSON schema. {error}") from error


def _first_state(call: Call) -> int:
    """A number for prompt and seed; for neither, where the call wants chance."""
    sampling = call.sampling
    if sampling.seed is None and sampling.temperature > 0:
        return int.from_bytes(os.urandom(8))
    key = f"{sampling.seed or 0}:".encode() + array("I", call.prompt_ids).tobytes()
    return int.from_bytes(blake2b(key, digest_size=8).digest())
