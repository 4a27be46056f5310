"""Counting a prompt's tokens at admission, and refusing what no context window can hold."""

import hashlib
import json
import sys
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Final

import structlog
from cachetools import LRUCache

from app.jobs.prompts import Prompt
from app.tokens import simulated
from app.tokens.errors import ContextLengthExceeded, PromptInvalid
from app.tokens.tokenizer import ChatTokenizer
from config.catalogue import ModelSpec

log = structlog.get_logger(__name__)

REMEMBERED: Final = 2_000  # prompts
INLINE_CHARS: Final = 4_000  # longer ones are counted beside the event loop: a million take half a second
CHARS_PER_TOKEN: Final = 4  # a guess, for models whose tokenizer is not here

_counted: Final[LRUCache[bytes, int]] = LRUCache(REMEMBERED)
_counted_lock: Final = threading.Lock()
_loading: Final = threading.Lock()


def count(spec: ModelSpec, prompt: Prompt) -> int:
    """How many tokens the engine will make of the prompt. Where the model's tokenizer is not on this machine
    it is a guess, and the engine decides. Raises `PromptInvalid`.
    """
    if spec.engine == "simulated" and _size(prompt) <= INLINE_CHARS:
        return _simulated(prompt)
    version = _version(spec)
    key = _digest(spec, version, prompt)
    with _counted_lock:
        known = _counted.get(key)
    if known is not None:
        return known
    found = _count(spec, version, prompt)
    with _counted_lock:
        _counted[key] = found
    return found


def check(spec: ModelSpec, prompt_tokens: int, output_tokens: int | None) -> None:
    """`output_tokens` is what the client asks for. Raises `ContextLengthExceeded`."""
    if prompt_tokens + (output_tokens or 1) > spec.context_tokens:
        raise ContextLengthExceeded(prompt_tokens, output_tokens, spec.context_tokens)


def _version(spec: ModelSpec) -> int | None:
    """Of the tokenizer's file: weights may come, or be replaced, while this process runs."""
    try:
        return (Path(spec.weights_path) / "tokenizer.json").stat().st_mtime_ns
    except OSError:
        return None


def _digest(spec: ModelSpec, version: int | None, prompt: Prompt) -> bytes:
    digest = hashlib.blake2b(f"{spec.name} {spec.weights_path} {version} ".encode(), digest_size=16)

    def add(text: str) -> None:
        encoded = text.encode(errors="replace")
        digest.update(len(encoded).to_bytes(8) + encoded)

    add("chat" if prompt.raw is None else f"raw {prompt.raw}")
    add(json.dumps(prompt.tools) if prompt.tools else "")
    for message in prompt.messages:
        add(message["role"])
        add(message["content"])
        more = {name: value for name, value in message.items() if name not in {"role", "content"}}
        add(json.dumps(more) if more else "")
    return digest.digest()


def _count(spec: ModelSpec, version: int | None, prompt: Prompt) -> int:
    if spec.engine == "simulated":
        return _beside_the_loop(lambda: _simulated(prompt), _size(prompt))
    with _loading:
        tokenizer = _tokenizer(spec.weights_path, spec.chat_template_path, version)
    if tokenizer is None:
        return -(-_size(prompt) // CHARS_PER_TOKEN)
    is_raw = prompt.raw is not None
    text = tokenizer.render(prompt) if prompt.raw is None else prompt.raw
    return _beside_the_loop(lambda: tokenizer.count(text, is_raw=is_raw), len(text))


def _simulated(prompt: Prompt) -> int:
    try:
        return simulated.count_prompt(prompt)
    except KeyError as error:
        raise PromptInvalid(f"The model's chat template has no role {error}.") from error


def _size(prompt: Prompt) -> int:
    """Characters, about."""
    said = sum(len(message["content"]) for message in prompt.messages)
    return said + len(prompt.raw or "") + (len(json.dumps(prompt.tools)) if prompt.tools else 0)


@lru_cache(16)
def _tokenizer(weights_path: str, template: Path | None, _version: int | None) -> ChatTokenizer | None:
    try:
        return ChatTokenizer(Path(weights_path), template)
    except (OSError, ValueError) as error:
        log.warning("tokenizer.missing", weights=weights_path, error=str(error))
        return None


def _beside_the_loop(work: Callable[[], int], chars: int) -> int:
    """Under gevent, long texts on a native thread, so that other requests go on: the tokenizer lets go of the
    interpreter. `work` must not touch a lock: gevent's are no native thread's.
    """
    monkey = sys.modules.get("gevent.monkey")
    if chars <= INLINE_CHARS or monkey is None or not monkey.is_module_patched("threading"):
        return work()
    found: int = sys.modules["gevent"].get_hub().threadpool.apply(work)
    return found
