"""Output with the model's own markup taken apart: what it says, what it reasons, which calls it asks for. A
worker parses while it generates, and each piece of output carries its parts. Pure.

A part is JSON: `{"type": "text" | "reasoning", "text": ...}`, where reasoning also says how many `tokens` it
took and text may have `logprobs`; or `{"type": "tool_call", "index": 0, ...}`, first with `id` and `name`, then
with pieces of `arguments`.
"""

from collections.abc import Iterable
from typing import Any, Final

Part = dict[str, Any]

TEXT: Final = "text"
REASONING: Final = "reasoning"
TOOL_CALL: Final = "tool_call"


def text(said: str) -> Part:
    return {"type": TEXT, "text": said}


def reasoning(thought: str, tokens: int) -> Part:
    return {"type": REASONING, "text": thought, "tokens": tokens}


def call(index: int, call_id: str, name: str) -> Part:
    return {"type": TOOL_CALL, "index": index, "id": call_id, "name": name}


def arguments(index: int, written: str) -> Part:
    return {"type": TOOL_CALL, "index": index, "arguments": written}


def reasoning_tokens(parts: Iterable[Part]) -> int:
    return sum(part["tokens"] for part in parts if part["type"] == REASONING)
