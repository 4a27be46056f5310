"""Hostile JSON schemas against the real compiler: each is refused, by the API or by the guard, in bounded time,
and a good schema works right after.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from app.jobs.schemas import check_parameters, check_schema
from config.catalogue import catalogue
from tests.engine.conftest import EngineLoop
from workers.engine import EngineBusy, EngineDead, PromptRejected
from workers.engine.grammar import GrammarGuard, GrammarLimits, Structure

pytestmark = pytest.mark.vllm

VOCABULARY = 49_152
SHORT = GrammarLimits(cpu_seconds=2, wall_seconds=20)
STRING = {"type": "string"}
INTEGER = {"type": "integer"}


def thing(properties, **more):
    return {"type": "object", "properties": properties, **more}


def matching(pattern):
    return thing({"a": {"type": "string", "pattern": pattern}})


def numbered(count, schema):
    return {f"p{index}": schema for index in range(count)}


def structure(schema):
    return Structure("json", json.dumps(schema))


def tag(schema):
    begin = '<tool_call>\n{"name": "f", "arguments": '
    content = {"type": "json_schema", "json_schema": schema}
    call = {"begin": begin, "content": content, "end": "}\n</tool_call>"}
    triggered = {"type": "triggered_tags", "triggers": ["<tool_call>"], "tags": [call]}
    return Structure("tag", json.dumps({"type": "structural_tag", "format": triggered}))


class Guarded:
    """A guard on a loop of its own, as in a worker."""

    def __init__(self, limits, tokenizer):
        self.loop = EngineLoop()
        self._others = _guards_processes()
        self.guard = self.loop.run(self._made(limits, tokenizer))

    async def _made(self, limits, tokenizer):
        guard = GrammarGuard(tokenizer or catalogue()["smollm2"].weights_path, VOCABULARY, limits=limits)
        await guard.start()
        return guard

    def require(self, *structures):
        async def all_of_them():
            asked = (self.guard.require(one) for one in structures)
            return await asyncio.gather(*asked, return_exceptions=True)

        return self.loop.run(all_of_them())

    def refusal(self, wanted):
        """Why `wanted` is refused; None where it is not."""
        (found,) = self.require(wanted)
        if found is not None and not isinstance(found, PromptRejected):
            raise found
        return found and str(found)

    def children(self):
        return [child for child in _guards_processes() if child not in self._others]

    def close(self):
        self.loop.run(self.guard.stop())
        self.loop.close()


def _guards_processes():
    # What earlier tests ended and nobody asked after yet has no command line.
    children = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in children if "workers.engine.grammar_child" in child.cmdline()]


@contextmanager
def guarded(limits, tokenizer=""):
    subject = Guarded(limits, tokenizer)
    try:
        yield subject
    finally:
        subject.close()


@pytest.fixture(scope="module")
def subject():
    with guarded(SHORT) as subject:
        assert subject.refusal(structure(thing({"warm": STRING}))) is None
        yield subject


_fresh = iter(range(1_000_000))


def a_new_good_schema():
    return thing({f"fresh{next(_fresh)}": STRING, "count": INTEGER}, required=["count"])


# Measured with xgrammar 0.2.8 and this vocabulary, one thread of a machine of 2020.
HOSTILE_TO_THE_API = {
    "a pattern that repeats much": matching("^a{10000}$"),  # more than 20 s, in what vLLM does on its loop
    "repetitions in repetitions": matching("^((.{0,100}){0,100}){0,100}$"),  # more than 20 s
    "the same as a name": {"type": "object", "patternProperties": {"^([a-z]{0,50}){0,50}$": STRING}},
    "words of many alternatives": matching(  # 0.3 to 0.7 s in what vLLM does on its loop
        "^(" + "|".join(f"w{i}" for i in range(100)) + "){1,100}$"
    ),
    "more values than fit": {"enum": list(range(5_000))},
    "a bound beyond 32 bits": {"type": "array", "maxItems": 2**32},
    "a far reference": {"$ref": "https://example.com/schema"},  # xgrammar: anything goes
    "a dynamic reference": {"$dynamicRef": "#a"},  # xgrammar: anything goes
}

HOSTILE_TO_THE_COMPILER = {
    "some properties of many": thing(numbered(1_000, INTEGER), minProperties=2),  # more than 12 s, 1.1 GB
    "half of some properties": thing(numbered(300, STRING), minProperties=150),  # more than 12 s
    "small repetitions in repetitions": matching("^(.{0,10}){0,10}$"),  # more than 12 s
    "words of words": matching("^([a-z]{1,30} ){1,30}$"),  # 7 s
    "many lengths": {"anyOf": [{"type": "string", "maxLength": 10 + i} for i in range(200)]},  # more than 12 s
    "arrays of itself, of many lengths": {  # more than 12 s
        "anyOf": [{"type": "array", "items": {"$ref": "#"}, "maxItems": i + 1} for i in range(200)]
    },
    "objects of itself, of many kinds": {  # 8 s and more
        "anyOf": [thing({"a": {"$ref": "#"}, f"b{i}": INTEGER}, additionalProperties=True) for i in range(200)]
    },
    "a repetition that breaks xgrammar": matching("^[a-z]{0,200}$"),
    "a loop of references": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    },
    "nothing fits": thing({"a": False}, required=["a"]),
    "an unknown type": thing({"a": {"type": "frob"}}),
}

LARGE_AND_GOOD = {
    "many optional properties": thing(numbered(300, STRING)),  # 0.2 s
    "all properties required": thing(numbered(600, STRING), required=list(numbered(600, STRING))),  # 0.1 s
    "many values with a long prefix": thing({"a": {"enum": [f"aaaaaaaaaa{i}" for i in range(1_000)]}}),
    "references doubling at each level": {
        "$ref": "#/$defs/n0",
        "$defs": {f"n{i}": {"anyOf": [{"$ref": f"#/$defs/n{i + 1}"}] * 2} for i in range(40)} | {"n40": STRING},
    },
    "a tree": thing({"left": {"$ref": "#"}, "right": {"$ref": "#"}, "value": INTEGER}),
    "a long list": {"type": "array", "items": thing(numbered(20, STRING)), "minItems": 10_000},
    "an address": matching(r"^([0-9]{1,3}\.){3}[0-9]{1,3}$"),
}


@pytest.mark.parametrize("schema", HOSTILE_TO_THE_API.values(), ids=HOSTILE_TO_THE_API)
def test_the_api_refuses_what_a_compiler_need_not_see(schema):
    with pytest.raises(ValueError, match=r"limit is|must be|not supported"):
        check_schema(schema)


@pytest.mark.parametrize("schema", HOSTILE_TO_THE_COMPILER.values(), ids=HOSTILE_TO_THE_COMPILER)
def test_a_hostile_schema_is_refused_in_bounded_time_and_harms_no_other(subject, schema):
    check_schema(schema)
    (child,) = subject.children()
    started = time.monotonic()
    refusal = subject.refusal(structure(schema))
    assert refusal.startswith("This JSON schema ")
    assert "/project/" not in refusal
    assert time.monotonic() - started < SHORT.wall_seconds + 5
    assert subject.refusal(structure(a_new_good_schema())) is None
    assert subject.children() == [child]


@pytest.mark.parametrize("schema", LARGE_AND_GOOD.values(), ids=LARGE_AND_GOOD)
def test_a_large_schema_that_compiles_well_is_let_through(subject, schema):
    check_schema(schema)
    assert subject.refusal(structure(schema)) is None


def test_tools_are_judged_by_their_structural_tag(subject):
    schema = thing({"city": STRING}, required=["city"])
    assert subject.refusal(tag(check_parameters(schema))) is None
    hostile = thing(numbered(1_000, INTEGER), minProperties=2)
    assert "of these tools takes more than" in subject.refusal(tag(check_parameters(hostile)))
    assert subject.refusal(None) is None


def test_what_is_known_is_not_tried_again(subject):
    good, bad = structure(a_new_good_schema()), structure(matching("^(b{1,60}c{1,60}){1,60}$"))
    first = subject.refusal(bad)
    assert subject.refusal(good) is None
    (child,) = subject.children()
    child.suspend()
    try:
        assert subject.refusal(good) is None
        assert subject.refusal(bad) == first
    finally:
        child.resume()


def test_the_loop_goes_on_while_a_schema_is_tried(subject):
    async def beats():
        asked = asyncio.ensure_future(
            subject.guard.require(structure(thing(numbered(999, INTEGER), minProperties=2)))
        )
        count = 0
        while not asked.done():
            await asyncio.wait([asked], timeout=0.01)
            count += 1
        assert isinstance(asked.exception(), PromptRejected)
        return count

    assert subject.loop.run(beats()) > 20  # of some hundreds; a loop that is held up has one or two


def test_those_who_wait_for_the_same_schema_share_one_trial(subject):
    hostile = structure(thing(numbered(998, INTEGER), minProperties=2))
    started = time.monotonic()
    found = subject.require(hostile, hostile, hostile, hostile, structure(a_new_good_schema()))
    assert [type(one) for one in found] == [PromptRejected] * 4 + [type(None)]
    assert time.monotonic() - started < SHORT.wall_seconds + 5


def test_a_caller_that_goes_away_leaves_no_answer_in_the_pipe(subject):
    async def leave():
        asked = asyncio.ensure_future(
            subject.guard.require(structure(thing(numbered(997, INTEGER), minProperties=2)))
        )
        await asyncio.wait([asked], timeout=0.2)
        asked.cancel()
        await asyncio.wait([asked])
        assert asked.cancelled()

    subject.loop.run(leave())
    assert subject.refusal(structure(a_new_good_schema())) is None


def test_a_killed_process_is_replaced(subject):
    (child,) = subject.children()
    child.kill()
    assert subject.refusal(structure(a_new_good_schema())) is None
    (other,) = subject.children()
    assert other.pid != child.pid


def test_who_waits_too_long_is_told_that_the_engine_is_busy():
    with guarded(GrammarLimits(wait_seconds=0.05)) as subject:
        (found,) = subject.require(structure(a_new_good_schema()))
        assert isinstance(found, EngineBusy)


TOO_COSTLY = {  # each with the one limit that is tight
    "memory to compile": (thing(numbered(1_000, INTEGER), minProperties=2), {"memory_bytes": 2**26}),
    "time for each token": (
        {"anyOf": [thing({"aaaaaaaa": STRING, f"b{i}": STRING}) for i in range(250)]},
        {"step_seconds": 0.004},
    ),
    "time to read": (
        thing(
            {f"p{i}": {"type": "number", "minimum": i * 1.23457, "maximum": i * 98.765} for i in range(1, 300)}
        ),
        {"parse_seconds": 0.02},
    ),
}


@pytest.mark.parametrize("what", TOO_COSTLY)
def test_memory_and_the_time_of_each_step_have_limits_too(what):
    schema, tight = TOO_COSTLY[what]
    with guarded(GrammarLimits(cpu_seconds=30, wall_seconds=120, **tight)) as subject:
        assert subject.refusal(structure(schema)) == f"This JSON schema takes too much {what}."
        assert subject.refusal(structure(a_new_good_schema())) is None


def test_a_guard_without_its_process_is_a_dead_engine(tmp_path):
    with guarded(SHORT) as subject:
        subject.loop.run(subject.guard.stop())
        with pytest.raises(EngineDead):
            subject.refusal(structure(a_new_good_schema()))
        assert subject.children() == []
    with guarded(SHORT, tokenizer=str(tmp_path)) as subject, pytest.raises(EngineDead, match="did not start"):
        subject.refusal(structure(a_new_good_schema()))


PARENT = """
import asyncio, sys
from workers.engine.grammar import GrammarGuard, Structure

async def main():
    guard = GrammarGuard(sys.argv[1], int(sys.argv[2]))
    await guard.start()
    await guard.require(Structure("json", '{"type": "integer"}'))
    print("ready", flush=True)
    await guard.require(Structure("json", sys.argv[3]))

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's death signal is Linux's")
def test_the_process_and_its_trial_die_with_a_killed_worker(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    hostile = json.dumps(thing(numbered(1_000, INTEGER), minProperties=2))
    command = [sys.executable, script, catalogue()["smollm2"].weights_path, str(VOCABULARY), hostile]
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout.readline() == "ready\n"
        family = wait_for_two_generations(parent.pid)
        parent.send_signal(signal.SIGKILL)
        _, alive = psutil.wait_procs(family, timeout=5)
        assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []


def wait_for_two_generations(pid):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        family = psutil.Process(pid).children(recursive=True)
        if len(family) == 2:
            return family
        time.sleep(0.02)
    pytest.fail("The guard's process tried nothing.")
