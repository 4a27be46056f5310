"""The process that tries a grammar before the engine gets it, exactly as vLLM would compile it. It loads the
compiler and the tokenizer once, and forks for each question: what hangs, eats memory or crashes is the fork.
Questions and answers are lines of JSON. Started by `grammar`; not for import.
"""

import json
import os
import re
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import numpy as np
import torch
import xgrammar
from transformers import AutoTokenizer

from workers.engine.grammar import GrammarLimits
from workers.leash import die_with_parent

STEPS = 32
THREADS = min(4, os.cpu_count() or 1)

_SUBJECTS = {"json": "This JSON schema", "tag": "The JSON schemas of these tools"}
_INTERNAL = "Check failed"  # xgrammar's own slips; they tell a client nothing


class TooCostly(Exception):
    """What the structure takes too much of."""


class Trial:
    """One question, in a fork of its own."""

    def __init__(self, info: Any, limits: GrammarLimits, *, compact: bool) -> None:
        self._info = info
        self._limits = limits
        self._whitespace: dict[str, Any] = {
            "any_whitespace": not compact,
            "separators": (",", ":") if compact else None,
        }
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=THREADS)

    def run(self, kind: str, text: str) -> None:
        """Raises `TooCostly`, or whatever xgrammar does."""
        with _at_most(self._limits.parse_seconds, "time to read"):
            if kind == "json":
                xgrammar.Grammar.from_json_schema(text)
            else:
                xgrammar.Grammar.from_structural_tag(text)
        compiled = self._compile(kind, text)
        for choose in (_first, _same_again, _scattered):
            self._walk(xgrammar.GrammarMatcher(compiled), choose)

    def _compile(self, kind: str, text: str) -> Any:
        if kind == "json":
            return self._compiler.compile_json_schema(text, **self._whitespace)
        return self._compiler.compile_structural_tag(text)

    def _walk(self, matcher: Any, choose: Callable[[Any, list[int]], int]) -> None:
        """Some steps of an answer: a grammar can be quick to compile and slow to follow."""
        mask = xgrammar.allocate_token_bitmask(1, self._info.vocab_size)
        path: list[int] = []
        for _ in range(STEPS):
            with _at_most(self._limits.step_seconds, "time for each token"):
                matcher.fill_next_token_bitmask(mask)
            allowed = np.flatnonzero(np.unpackbits(mask.numpy().view(np.uint8), bitorder="little"))
            if not len(allowed) or (not path and set(allowed) <= set(self._info.stop_token_ids)):
                raise ValueError("no value fits it")
            path.append(choose(allowed, path))
            with _at_most(self._limits.step_seconds, "time for each token"):
                matcher.accept_token(path[-1])
            if matcher.is_terminated():
                return


def _first(allowed: Any, path: list[int]) -> int:  # noqa: ARG001 - as the others
    return int(allowed[0])


def _same_again(allowed: Any, path: list[int]) -> int:
    """Repetition and nesting are where grammars pile up."""
    return path[-1] if path and path[-1] in allowed else int(allowed[len(path) % len(allowed)])


def _scattered(allowed: Any, path: list[int]) -> int:
    return int(allowed[(7_919 * (len(path) + 1)) % len(allowed)])


@contextmanager
def _at_most(seconds: float, what: str) -> Iterator[None]:
    started = time.thread_time()
    yield
    if time.thread_time() - started > seconds:
        raise TooCostly(what)


def _judge(trial_of: Callable[[], Trial], limits: GrammarLimits, question: dict[str, str]) -> str:
    """Why the structure is refused; empty if it is not."""
    subject = _SUBJECTS[question["kind"]]
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        _try_apart(trial_of, limits, question, writer)
    os.close(writer)
    try:
        is_over, _, _ = select.select([reader], [], [], limits.wall_seconds)
        answer = os.read(reader, 65_536).decode() if is_over else ""
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)  # not yet waited for, so the number is still its own
        _, status = os.waitpid(child, 0)
    if answer:
        return _refusal(subject, json.loads(answer))
    is_slow = not is_over or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU)
    if is_slow:
        return (
            f"{subject} takes more than {limits.cpu_seconds} seconds to compile. "
            "Most costly are long or many different repetitions: pattern, maxLength, maxItems, minProperties."
        )
    return f"{subject} takes too much memory to compile, or cannot be compiled."


def _refusal(subject: str, found: dict[str, str]) -> str:
    if "costly" in found:
        return f"{subject} takes too much {found['costly']}."
    error = re.sub(r"\[[\d:]+\] \S+:\d+: ", "", found.get("error", "")).partition("\n")[0].strip()
    if not error:
        return ""
    return f"{subject} cannot be followed by the engine" + ("." if _INTERNAL in error else f": {error[:300]}")


def _try_apart(
    trial_of: Callable[[], Trial], limits: GrammarLimits, question: dict[str, str], writer: int
) -> NoReturn:
    die_with_parent(signal.SIGKILL)
    _limit(limits)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # xgrammar warns about clients' schemas
    found = {"ok": ""}
    try:
        trial_of().run(question["kind"], question["text"])
    except TooCostly as error:
        found = {"costly": str(error)}
    except MemoryError:
        found = {"costly": "memory to compile"}
    except Exception as error:  # noqa: BLE001 - xgrammar's errors are of many kinds
        is_memory = "bad_alloc" in str(error)
        found = {"costly": "memory to compile"} if is_memory else {"error": str(error) or type(error).__name__}
    os.write(writer, json.dumps(found).encode()[:65_536])
    os._exit(0)


def _limit(limits: GrammarLimits) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_seconds, limits.cpu_seconds + 1))
    with suppress(OSError):  # outside Linux there is no such file: then time alone is limited
        with open("/proc/self/status") as status:  # noqa: PTH123 - the kernel's file
            data_kib = next(int(line.split()[1]) for line in status if line.startswith("VmData"))
        most = data_kib * 1024 + limits.memory_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def main(written: str) -> None:
    die_with_parent(signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    options = json.loads(written)
    tokenizer, vocab_size, compact = (options.pop(name) for name in ("tokenizer", "vocab_size", "compact"))
    limits = GrammarLimits(**options)
    torch.set_num_threads(1)
    info = xgrammar.TokenizerInfo.from_huggingface(
        AutoTokenizer.from_pretrained(tokenizer), vocab_size=vocab_size
    )
    answers.write('{"ready": true}\n')
    answers.flush()
    for line in sys.stdin:
        refusal = _judge(lambda: Trial(info, limits, compact=compact), limits, json.loads(line))
        answers.write(json.dumps({"refusal": refusal}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
