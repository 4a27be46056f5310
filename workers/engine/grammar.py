"""The guard before the engine's grammar compiler, which has neither a time limit nor a memory limit: what an
output must follow is compiled by a throw-away process first (`grammar_child`), and by the engine only if that
went well. It knows schemas and structural tags as texts, and nothing of engines.
"""

import asyncio
import hashlib
import json
import logging
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from cachetools import LRUCache, TTLCache

from workers.engine import EngineBusy, EngineDead, PromptRejected

# Each different maxLength of a schema takes 1.5 s with a vocabulary of 49,152 tokens; a schema that never ends
# holds up, for so long, those whose schemas are new.
CPU_SECONDS: Final = 10
KNOWN_GOOD: Final = 4_096
KNOWN_BAD: Final = 1_024
BAD_FOR_SECONDS: Final = 600

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """What one structure may cost. CPU time is counted where possible: a busy machine is nobody's fault."""

    cpu_seconds: int = CPU_SECONDS  # to compile it and take some steps through it, on all threads
    wall_seconds: float = 3 * CPU_SECONDS
    parse_seconds: float = 0.25  # CPU; vLLM parses it once more on the loop of every stream
    step_seconds: float = 0.1  # CPU; every call of the engine waits while one finds its allowed tokens
    memory_bytes: int = 2**30  # beyond what the process holds when idle
    wait_seconds: float = 60  # for the answer, others' turns included
    start_seconds: float = 180


@dataclass(frozen=True, slots=True)
class Structure:
    """What an output must follow, as the engine compiles it."""

    kind: Literal["json", "tag"]
    text: str

    @property
    def key(self) -> bytes:
        return hashlib.sha256(f"{self.kind}:{self.text}".encode()).digest()


def structure_of(wanted: Any) -> Structure | None:
    """What there is to judge in vLLM's `StructuredOutputsParams`; a plain JSON object needs no judgement."""
    if wanted is None or wanted.json_object:
        return None
    if wanted.structural_tag is not None:
        return Structure("tag", wanted.structural_tag)
    return Structure("json", wanted.json if isinstance(wanted.json, str) else json.dumps(wanted.json))


@dataclass(slots=True)
class _Asked:
    """One structure under judgement; those who wait for it share the answer."""

    structure: Structure
    waiting: int = 0
    task: asyncio.Task[str] | None = None


@dataclass
class GrammarGuard:
    """Lives on the engine's loop and never holds it up. `tokenizer` is a folder or a name, as the engine's;
    `compact` is whether JSON is written without spaces.
    """

    tokenizer: str
    vocab_size: int
    compact: bool = True
    limits: GrammarLimits = field(default_factory=GrammarLimits)

    def __post_init__(self) -> None:
        self._good: LRUCache[bytes, str] = LRUCache(KNOWN_GOOD)
        self._bad: TTLCache[bytes, str] = TTLCache(KNOWN_BAD, BAD_FOR_SECONDS)
        self._asked: dict[bytes, _Asked] = {}
        self._turn = asyncio.Lock()
        self._child: asyncio.subprocess.Process | None = None
        self._is_ready = False
        self._is_stopped = False

    async def start(self) -> None:
        """Begin to warm the process up. Call it on a thread that lives as long as the worker: the child dies
        with the thread that started it.
        """
        await self._spawn()

    async def stop(self) -> None:
        self._is_stopped = True
        await self._discard()
        asked = [one.task for one in self._asked.values() if one.task is not None]
        await asyncio.gather(*asked, return_exceptions=True)

    async def require(self, structure: Structure | None) -> None:
        """Return once it is known that the engine can compile `structure` in time. Raises `PromptRejected` if
        it cannot, `EngineBusy` if no answer came in time, `EngineDead` if there is nobody to ask.
        """
        if structure is None:
            return
        refusal = self._recall(structure.key)
        if refusal is None:
            refusal = await self._wait(structure)
        if refusal:
            raise PromptRejected(refusal)

    def _recall(self, key: bytes) -> str | None:
        """Empty where the structure is good."""
        return self._good.get(key, self._bad.get(key))

    async def _wait(self, structure: Structure) -> str:
        asked = self._asked.get(structure.key) or self._ask(structure)
        assert asked.task is not None
        asked.waiting += 1
        try:
            async with asyncio.timeout(self.limits.wait_seconds):
                return await asyncio.shield(asked.task)
        except TimeoutError as error:
            raise EngineBusy("Too many JSON schemas wait to be compiled.") from error
        finally:
            asked.waiting -= 1

    def _ask(self, structure: Structure) -> _Asked:
        asked = self._asked[structure.key] = _Asked(structure)
        asked.task = asyncio.create_task(self._judge(asked))
        asked.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return asked

    async def _judge(self, asked: _Asked) -> str:
        """One at a time. A caller that is cancelled leaves this running: the answer is worth keeping, and the
        next question must not meet it in the pipe.
        """
        key = asked.structure.key
        try:
            async with self._turn:
                if not asked.waiting:
                    raise EngineBusy("Nobody waits for it any more.")
                refusal = await self._answer(asked.structure)
                (self._bad if refusal else self._good)[key] = refusal
                return refusal
        finally:
            del self._asked[key]

    async def _answer(self, structure: Structure) -> str:
        """Each question is tried apart within the child, so the child itself fails for other reasons, if ever:
        try again once.
        """
        for _ in range(2):
            child = await self._ready_child()
            try:
                async with asyncio.timeout(self.limits.wall_seconds + 10):
                    return str((await self._say(child, asdict(structure)))["refusal"])
            except (OSError, EOFError, TimeoutError, ValueError) as error:
                log.warning("The grammar guard's process failed and is replaced: %r", error)
                await self._discard()
        return "The engine could not compile this JSON schema."

    async def _say(self, child: asyncio.subprocess.Process, line: dict[str, Any]) -> dict[str, Any]:
        assert child.stdin is not None
        child.stdin.write(json.dumps(line).encode() + b"\n")
        await child.stdin.drain()
        return await _hear(child)

    async def _ready_child(self) -> asyncio.subprocess.Process:
        if self._is_stopped:
            raise EngineDead("The engine has stopped.")
        child = self._child or await self._spawn()
        if not self._is_ready:
            try:
                async with asyncio.timeout(self.limits.start_seconds):
                    await _hear(child)
            except (OSError, EOFError, TimeoutError, ValueError) as error:
                await self._discard()
                raise EngineDead("The grammar guard's process did not start.") from error
            self._is_ready = True
        return child

    async def _spawn(self) -> asyncio.subprocess.Process:
        options = {"tokenizer": self.tokenizer, "vocab_size": self.vocab_size, "compact": self.compact}
        self._is_ready = False
        child = self._child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "ignore", "-m", "workers.engine.grammar_child"),
            json.dumps(options | asdict(self.limits)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        return child

    async def _discard(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()


async def _hear(child: asyncio.subprocess.Process) -> dict[str, Any]:
    assert child.stdout is not None
    line = await child.stdout.readline()
    if not line:
        raise EOFError("It is gone.")
    said: dict[str, Any] = json.loads(line)
    return said
