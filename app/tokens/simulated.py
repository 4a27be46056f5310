"""The tokens of the simulated model: special ones, one for each byte, and some words. A text becomes tokens and
back without loss, and an emoji is four tokens, as it is for many real models. Its chat template is here too.
"""

import json
import re
from collections.abc import Iterator
from itertools import repeat
from typing import Any

from app.jobs.prompts import Prompt

# The model's markup, around a call and around what it reasons.
CALL, CALL_END = "<tool_call>", "</tool_call>"
THINK, THINK_END = "<think>", "</think>"

EOS = 0
ROLES = {"system": 1, "user": 2, "assistant": 3, "tool": 4}
SPECIAL = [b"<|end|>", b"<|system|>", b"<|user|>", b"<|assistant|>", b"<|tool|>"]
BYTE = len(SPECIAL)  # the token of byte 0
WORD = BYTE + 256  # the token of the first word

_PROSE_WORDS = (
    "the ship and its crew kept on through night while long swell carried them past islands harbours "
    "lanterns ropes anchors captain pilot cook gull whale storm calm tide moon star north south east "
    "west wind rain fog salt water wood iron brass canvas chart compass bell watch song story letter "
    "bread tea soup map log page ink dawn noon dusk midnight hour day week slow quick bright dark cold "
    "warm old new far near deep wide high low quiet loud steady lost found sailed waited turned called "
    "answered counted mended wrote read slept woke again before after under over between beyond until "
    "because though never always often once café naïve über señor façade jalapeño smörgåsbord 東京 москва"
)
TEXT = [*(f" {word}" for word in _PROSE_WORDS.split()), ".", ",", " -", "\n", " The", " A", " But", " So"]
WORD_IDS = {text: WORD + index for index, text in enumerate(TEXT)}
_PIECES = re.compile(r" ?[^\W\d_]+|.", re.DOTALL)
_WORDS = re.compile(r" ?[^\W\d_]+")
# The bytes that a word's token stands for, but for one.
_SAVED = {text: len(text.encode()) - 1 for text in WORD_IDS}
SHORT_CHARS = 4_000


def encode_text(text: str) -> list[int]:
    ids: list[int] = []
    for piece in _PIECES.findall(text):
        word = WORD_IDS.get(piece)
        if word is None:
            ids += [BYTE + byte for byte in piece.encode("utf-8", "replace")]
        else:
            ids.append(word)
    return ids


def count_prompt(prompt: Prompt) -> int:
    """How many ids `encode_prompt` gives, without making a list of a million things: that would keep the
    interpreter to itself. Raises as it does.
    """
    if prompt.raw is not None:
        return _count_text(prompt.raw)
    found = len([ROLES["assistant"]])
    for role, text in _render(prompt):
        found += len([ROLES[role], EOS]) + _count_text(text)
    return found


def _count_text(text: str) -> int:
    is_short = len(text) <= SHORT_CHARS
    words = _WORDS.findall(text) if is_short else (found[0] for found in _WORDS.finditer(text))
    return len(text.encode("utf-8", "replace")) - sum(map(_SAVED.get, words, repeat(0)))


def encode_prompt(prompt: Prompt) -> list[int]:
    """Raises `KeyError` for a role that the template lacks."""
    if prompt.raw is not None:
        return encode_text(prompt.raw)
    ids: list[int] = []
    for role, text in _render(prompt):
        ids += [ROLES[role], *encode_text(text), EOS]
    return [*ids, ROLES["assistant"]]


def _render(prompt: Prompt) -> Iterator[tuple[str, str]]:
    """The chat template: roles and their texts."""
    if prompt.tools:
        yield "system", f"You may call: {_json(prompt.tools)}"
    for message in prompt.messages:
        calls = [call["function"] for call in message.get("tool_calls", ())]
        yield message["role"], message["content"] + "\n".join(write_call(**call) for call in calls)


def write_call(name: str, arguments: Any) -> str:
    """A call as the model writes it; `arguments` that are no JSON stand as they are."""
    written = arguments if isinstance(arguments, str) else _json(arguments)
    return f'{CALL}\n{{"name": {_json(name)}, "arguments": {written}}}\n{CALL_END}'


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
