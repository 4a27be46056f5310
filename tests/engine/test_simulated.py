"""What the simulated engine can do beyond the contract: faults and pace on cue."""

import asyncio
import multiprocessing
import signal
import subprocess
import sys
import time

import jsonschema
import pytest

from tests.engine.conftest import SLOTS, Subject, running, simulated_spec
from workers.engine import Call, EngineDead, FinishReason, PromptRejected, Sampling
from workers.engine.loading import load_engine
from workers.engine.simulated_json import smallest_instance


@pytest.fixture
def subject():
    with running(simulated_spec()) as subject:
        yield subject


def test_a_prompt_directs_length_and_words(subject):
    counted = subject.answer("[[tokens=12]]", max_tokens=100)
    said = subject.answer("[[say=Ahoy, 🦊!]]", max_tokens=100)

    assert (len(counted.ids), counted.finish) == (13, FinishReason.STOP)
    assert (subject.text(said.ids), said.finish) == ("Ahoy, 🦊!", FinishReason.STOP)


@pytest.mark.parametrize("cut", range(1, 12))
def test_an_answer_full_of_emoji_is_resumed_exactly_at_any_byte(subject, cut):
    whole = subject.answer("[[emoji]]", max_tokens=60)

    rest = subject.answer("[[emoji]]", max_tokens=60, prior=whole.ids[:cut])

    assert whole.ids[:cut] + rest.ids == whole.ids
    assert subject.text(whole.ids).rstrip("\ufffd").count("\ufffd") == 0
    assert any(0x1F600 <= ord(character) < 0x1F640 for character in subject.text(whole.ids))


def test_chance_keeps_characters_whole_across_a_resume(subject):
    whole = subject.answer("[[emoji]]", max_tokens=100, temperature=1.0).ids

    for cut in range(1, 40):
        rest = subject.answer("[[emoji]]", max_tokens=cut + 10, temperature=1.0, prior=whole[:cut]).ids
        assert "\ufffd" not in subject.text([*whole[:cut], *rest]).rstrip("\ufffd")


def test_a_rejected_prompt(subject):
    with pytest.raises(PromptRejected):
        subject.answer("[[reject]]")


def test_a_stalled_call_says_nothing_more_until_it_is_closed(subject):
    async def read_stalled():
        ids = []
        try:
            async with asyncio.timeout(0.3):
                async for delta in subject.engine.generate(subject.call("[[stall_after=3]]")):
                    ids += delta.token_ids
        except TimeoutError:
            return ids

    assert len(subject.loop.run(read_stalled())) == 3
    assert len(subject.answer(max_tokens=5).ids) == 5


def test_a_dead_engine_ends_every_call_and_takes_no_more(subject):
    async def die():
        calls = [subject.call(max_tokens=10_000) for _ in range(SLOTS + 2)]
        calls[0] = subject.call("[[engine_dies_after=5]]")
        return await asyncio.gather(*(subject.read(call) for call in calls), return_exceptions=True)

    assert {type(end) for end in subject.loop.run(die())} == {EngineDead}
    with pytest.raises(EngineDead):
        subject.engine.check()
    with pytest.raises(EngineDead):
        subject.answer()


def test_an_engine_that_is_not_started_or_was_stopped_is_dead():
    engine = load_engine(simulated_spec())
    with pytest.raises(EngineDead):
        engine.check()

    with running(simulated_spec()) as subject:
        subject.engine.check()
    with pytest.raises(EngineDead):
        subject.engine.check()


def test_a_slow_call_keeps_its_own_pace(subject):
    started_at = time.monotonic()
    subject.answer("[[step_ms=40]]", max_tokens=10)

    assert time.monotonic() - started_at > 0.3


def test_prefill_takes_the_time_its_tokens_need():
    with running(simulated_spec(prefill_tokens_per_second=1000)) as subject:
        prompt = subject.encode_plain(" sea" * 300)[:300]
        started_at = time.monotonic()
        subject.answer(prompt, max_tokens=1)
        first = time.monotonic() - started_at
        subject.answer(prompt, max_tokens=1)
        again = time.monotonic() - started_at - first

    assert first > 0.28
    assert again < 0.1


def _crash() -> None:
    engine = load_engine(simulated_spec())

    async def run():
        await engine.start()
        prompt = engine.encode("[[crash_after=3]]")
        async for _ in engine.generate(Call("call", prompt, Sampling(max_tokens=50))):
            pass

    asyncio.run(run())


def test_a_poison_prompt_kills_its_process():
    process = multiprocessing.get_context("spawn").Process(target=_crash)
    process.start()
    process.join(30)

    assert process.exitcode == -signal.SIGKILL


def test_cues_are_plain_text_where_the_catalogue_does_not_ask_for_them():
    with running(simulated_spec(cues=False)) as subject:
        answer = subject.answer("[[reject]] [[crash_after=1]] [[tokens=3]]", max_tokens=20)

    assert len(answer.ids) == 20


def test_simulating_imports_no_vllm():
    script = (
        "import sys\n"
        "from config.catalogue import catalogue\n"
        "from workers.engine.loading import load_engine\n"
        "load_engine(catalogue()['simulated'])\n"
        "assert not {'vllm', 'torch', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_every_slot_makes_a_token_each_step():
    """Far below the bench's aim, so that a busy test machine passes too."""
    with running(simulated_spec(step_seconds=0.0125)) as small:
        engine = load_engine(simulated_spec(step_seconds=0.0125), 512)
        wide = Subject(engine, small.loop)
        small.loop.run(engine.start())
        started_at = time.monotonic()
        answers = wide.answers([wide.call("Hello", max_tokens=100, seed=n) for n in range(512)])
        seconds = time.monotonic() - started_at
        small.loop.run(engine.stop())

    assert sum(len(answer.ids) for answer in answers) == 51_200
    assert 51_200 / seconds > 4_000


SCHEMAS = [
    {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/a"}},
        "required": ["a"],
        "$defs": {"a": {"type": "string"}},
    },
    {"type": "array", "items": {"type": "integer", "minimum": 3}, "minItems": 2},
    {"anyOf": [{"type": "null"}, {"type": "string"}]},
    {
        "allOf": [{"properties": {"a": {"type": "number"}}, "required": ["a"]}, {"required": ["b"]}],
        "type": "object",
    },
    {"enum": ["x", "y"]},
    {"const": {"deep": [1]}},
    {"type": ["string", "null"], "minLength": 4},
    {"type": "integer", "exclusiveMinimum": 9, "maximum": 12},
    {"type": "number", "maximum": -2},
    {"type": "boolean"},
    {"type": "object"},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_the_smallest_instance_is_valid(schema):
    jsonschema.validate(smallest_instance(schema), schema)


@pytest.mark.parametrize(
    "schema",
    [{"type": "nonsense"}, {"$ref": "#/$defs/missing"}, {"$ref": "#"}],
    ids=["type", "reference", "loop"],
)
def test_a_schema_without_an_instance_is_refused(schema):
    with pytest.raises(ValueError):
        smallest_instance(schema)
