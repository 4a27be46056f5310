"""What the simulated engine says to a call: the prompt's cues, and the writer that follows them. It knows
nothing of time or slots.
"""

import json
import os
import re
from array import array
from collections.abc import Mapping
from hashlib import blake2b

from app.tokens.simulated import encode_text
from workers.engine import Call, PromptRejected
from workers.engine.simulated_json import smallest_instance
from workers.engine.simulated_words import VOCABULARY, Writer

_CUE = re.compile(r"\[\[(\w+)(?:=(.*?))?\]\]", re.DOTALL)


def find_cues(call: Call) -> dict[str, str]:
    return dict(_CUE.findall(VOCABULARY.decode(call.prompt_ids)))


def open_writer(call: Call, cues: Mapping[str, str]) -> Writer:
    """Where earlier attempts left off. Raises `PromptRejected` for a schema that cannot be followed."""
    sampling = call.sampling
    script = _script(call, cues)
    ends_at = int(cues["tokens"]) if "tokens" in cues else len(script) or None
    if ends_at is not None:
        ends_at = None if sampling.ignore_eos else max(ends_at, sampling.min_tokens)
    writer = Writer(_first_state(call), script, ends_at, emoji="emoji" in cues)
    writer.go_on_after(call.prior_ids)
    return writer


def _script(call: Call, cues: Mapping[str, str]) -> list[int]:
    sampling = call.sampling
    if sampling.json_schema is None:
        return encode_text("{}" if sampling.json_object else cues.get("say", ""))
    try:
        instance = smallest_instance(sampling.json_schema)
    except ValueError as error:
        raise PromptRejected(f"The engine cannot follow this JSON schema. {error}") from error
    return encode_text(json.dumps(instance, ensure_ascii=False))


def _first_state(call: Call) -> int:
    """A number for prompt and seed; for neither, where the call wants chance."""
    sampling = call.sampling
    if sampling.seed is None and sampling.temperature > 0:
        return int.from_bytes(os.urandom(8))
    key = f"{sampling.seed or 0}:".encode() + array("I", call.prompt_ids).tobytes()
    return int.from_bytes(blake2b(key, digest_size=8).digest())
