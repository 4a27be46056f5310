"""What every engine must do. A prompt's cues (`[[tokens=8]]`) direct the simulated engine and are plain text
to a model.
"""

import asyncio
import itertools
import json
import time
from contextlib import aclosing
from dataclasses import replace

import jsonschema
import pytest

from app.jobs.prompts import Prompt
from tests.engine.conftest import WEATHER
from tests.engine.folding import fold
from workers.engine import EngineDead, FinishReason, PromptRejected

SHORT = {"simulated": "What is the capital of France? [[tokens=8]]", "vllm": "What is the capital of France?"}
PENALTIES = {
    "no penalties": {},
    "presence and frequency": {"presence_penalty": 1.2, "frequency_penalty": 0.7},
    "all three": {"presence_penalty": 0.8, "frequency_penalty": 0.5, "repetition_penalty": 1.3},
}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture
def short(subject) -> str:
    """A prompt whose answer ends by itself, soon."""
    return SHORT[subject.engine.spec.engine]


def test_the_last_delta_and_no_other_carries_the_finish(subject):
    answer = subject.answer(max_tokens=30)

    assert [delta.finish for delta in answer.deltas[:-1]] == [None] * (len(answer.deltas) - 1)
    assert answer.finish is FinishReason.LENGTH
    assert len(answer.ids) == 30
    assert subject.text(answer.ids).strip()


def test_tokens_come_one_by_one_to_a_reader_who_keeps_up(subject):
    answer = subject.answer(max_tokens=30)

    assert len(answer.deltas) > 15


def test_a_late_reader_gets_every_token_in_longer_deltas(subject):
    prompt_reader = subject.answer(max_tokens=40)

    async def read_late():
        ids, deltas = [], 0
        async for delta in subject.engine.generate(subject.call(max_tokens=40)):
            ids += delta.token_ids
            deltas += 1
            # Not a wait for anything: this reader is slow.
            await asyncio.sleep(0.5 if deltas == 1 else 0)
        return ids, deltas

    ids, deltas = subject.loop.run(read_late())
    assert ids == prompt_reader.ids
    assert deltas < len(prompt_reader.deltas)


def test_an_answer_that_ends_by_itself_finishes_with_stop_and_its_end_decodes_to_no_text(subject, short):
    answer = subject.answer(short)

    assert answer.finish is FinishReason.STOP
    assert subject.text(answer.ids[-1:]) == ""
    assert subject.text(answer.ids) == subject.text(answer.ids[:-1])


def test_min_tokens_keeps_an_answer_from_ending(subject, short):
    natural = subject.answer(short).ids

    longer = subject.answer(short, min_tokens=len(natural) + 12).ids

    assert len(longer) >= len(natural) + 12
    assert natural[-1] not in longer[: len(natural) + 12]


def test_ignore_eos_goes_on_to_max_tokens(subject, short):
    answer = subject.answer(short, ignore_eos=True, max_tokens=50)

    assert (len(answer.ids), answer.finish) == (50, FinishReason.LENGTH)


@pytest.mark.parametrize("penalties", PENALTIES.values(), ids=PENALTIES)
@pytest.mark.parametrize("cut", [1, 20, 40, 59])
def test_a_resumed_answer_equals_the_undisturbed_one(subject, penalties, cut):
    whole = subject.undisturbed(min_tokens=60, **penalties)

    rest = subject.answer(min_tokens=60, prior=whole[:cut], **penalties)

    assert whole[:cut] + rest.ids == whole
    assert rest.finish is FinishReason.LENGTH


def test_penalties_change_a_model_s_answer(subject):
    plain, *penalised = (subject.undisturbed(min_tokens=60, **penalties) for penalties in PENALTIES.values())

    if subject.engine.spec.engine == "simulated":
        assert penalised == [plain, plain]
    else:
        assert plain not in penalised
        assert penalised[0] != penalised[1]


@pytest.mark.parametrize("cut", [1, 4])
def test_a_resumed_answer_ends_where_the_undisturbed_one_ends(subject, short, cut):
    whole = subject.answer(short)

    rest = subject.answer(short, prior=whole.ids[:cut])

    assert whole.ids[:cut] + rest.ids == whole.ids
    assert rest.finish is FinishReason.STOP


def test_min_tokens_counts_from_the_first_attempt_s_first_token(subject, short):
    natural = subject.answer(short).ids
    at_least = len(natural) + 12
    whole = subject.answer(short, min_tokens=at_least).ids

    rest = subject.answer(short, min_tokens=at_least, prior=whole[:5]).ids

    assert whole[:5] + rest == whole


@pytest.mark.parametrize("missing_bytes", [1, 2])
def test_an_answer_cut_inside_an_emoji_goes_on_without_repeating_anything(subject, missing_bytes):
    prior = subject.encode_plain("Look, a cat: 😸")[:-missing_bytes]
    decoder = subject.engine.decoder(subject.engine.encode("Tell me a long story about the sea."))
    seen = "".join(decoder.step(token) for token in prior)

    rest = subject.answer(prior=prior, max_tokens=len(prior) + 10).ids

    seen += "".join(decoder.step(token) for token in rest) + decoder.flush()
    assert seen == subject.text([*prior, *rest])
    assert seen.count("Look, a cat: ") == 1
    assert "long story" not in seen


def test_text_does_not_depend_on_where_its_tokens_are_cut(subject):
    ids = subject.encode_plain("naïve 🦊 and 東京, then 👩‍🚀\n\tend ✓")
    assert subject.text(ids) == "naïve 🦊 and 東京, then 👩‍🚀\n\tend ✓"

    for cut in range(len(ids) + 1):
        decoder = subject.engine.decoder([])
        before = "".join(decoder.step(token) for token in ids[:cut])
        again = subject.engine.decoder([])
        assert "".join(again.step(token) for token in ids[:cut]) == before
        after = "".join(again.step(token) for token in ids[cut:]) + again.flush()
        assert before + after == subject.text(ids)


def test_bytes_that_never_become_a_character_are_shown_as_a_replacement_at_the_end(subject):
    ids = subject.encode_plain("a 😸")
    decoder = subject.engine.decoder([])

    text = "".join(decoder.step(token) for token in ids[:-1])

    assert text == "a "
    assert decoder.flush() == "\ufffd"


def test_an_answer_that_earlier_attempts_ended_finishes_at_once(subject, short):
    whole = subject.answer(short).ids

    ended = subject.answer(short, prior=whole)
    full = subject.answer(prior=whole[:5], max_tokens=5)

    assert (ended.ids, ended.finish) == ([], FinishReason.STOP)
    assert (full.ids, full.finish) == ([], FinishReason.LENGTH)


def test_the_context_bounds_an_answer(subject):
    context = subject.engine.spec.context_tokens
    filler = subject.encode_plain(" and so on")
    prompt = list(itertools.islice(itertools.cycle(filler), context - 7))

    answer = subject.answer(prompt, max_tokens=100, ignore_eos=True)

    assert (len(answer.ids), answer.finish) == (7, FinishReason.LENGTH)


def test_a_prompt_that_fills_the_context_is_rejected_in_words_for_its_author(subject):
    context = subject.engine.spec.context_tokens
    prompt = list(itertools.islice(itertools.cycle(subject.encode_plain(" and so on")), context))

    with pytest.raises(PromptRejected, match=rf"{context} tokens"):
        subject.answer(prompt)


@pytest.mark.parametrize(
    "content",
    [[{"type": "image_url", "image_url": {"url": "x"}}], 5, [7]],
    ids=["an image", "a number", "a part"],
)
def test_contents_that_are_not_text_are_rejected(subject, content):
    with pytest.raises(PromptRejected):
        subject.engine.encode(Prompt([{"role": "user", "content": content}]))


def test_a_string_is_a_single_user_message_and_text_parts_are_joined(subject):
    encode = subject.engine.encode

    assert encode("Hello") == encode(Prompt([{"role": "user", "content": "Hello"}]))
    halves = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert encode("a\nb") == encode(Prompt([{"role": "user", "content": halves}]))


def test_a_raw_prompt_is_read_as_it_stands(subject):
    assert subject.text(subject.engine.encode(Prompt(raw="Once upon a time"))) == "Once upon a time"


def test_tools_and_what_came_of_them_are_part_of_the_prompt(subject):
    function = {"name": "get_weather", "arguments": {"city": "Oslo"}}
    asked = [{"role": "user", "content": "Is it cold?"}]
    called = [{"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "function": function}]}]
    answered = [{"role": "tool", "content": "-7", "tool_call_id": "call_1", "name": "get_weather"}]

    plain, offered, made, told = (
        subject.text(subject.engine.encode(prompt))
        for prompt in (
            Prompt(asked),
            Prompt(asked, list(WEATHER.tools)),
            Prompt(asked + called, list(WEATHER.tools)),
            Prompt(asked + called + answered, list(WEATHER.tools)),
        )
    )

    assert "get_weather" not in plain
    assert "The weather of a city" in offered
    assert '{"name": "get_weather", "arguments": {"city": "Oslo"}}' in made
    assert "-7" in told


@pytest.mark.parametrize("choice", ["required", "get_weather"])
def test_a_forced_choice_makes_a_call_with_valid_arguments(subject, choice):
    use = replace(WEATHER, choice=choice, is_named=choice != "required", is_parallel=False)

    prompt = subject.engine.encode(Prompt([{"role": "user", "content": "Weather in Oslo?"}], list(use.tools)))
    answer = subject.answer(prompt, tool_use=use, max_tokens=120)

    found = fold(subject.parts(answer.ids, prompt, use))
    (call,) = found.calls
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in use.tools}
    assert (found.content, found.reasoning, answer.finish) == ("", "", FinishReason.STOP)
    assert choice in {"required", call["name"]}
    jsonschema.validate(json.loads(call["arguments"]), schemas[call["name"]])


def test_a_format_beside_tools_holds_what_is_no_call(subject):
    prompt = subject.engine.encode(Prompt([{"role": "user", "content": "Who is it?"}], list(WEATHER.tools)))

    answer = subject.answer(prompt, tool_use=WEATHER, json_schema=SCHEMA, max_tokens=120)

    found = fold(subject.parts(answer.ids, prompt, WEATHER))
    assert answer.finish is FinishReason.STOP
    if not found.calls:
        jsonschema.validate(json.loads(found.content), SCHEMA)


def test_calls_of_one_job_have_the_same_ids_in_every_attempt(subject):
    text = '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'
    ids = subject.encode_plain(text * 2)

    first, again, other = (
        [call["id"] for call in fold(subject.parts(ids, (), WEATHER, job_id)).calls]
        for job_id in ("job_1", "job_1", "job_2")
    )

    assert first == again
    assert len({*first, *other}) == 4
    assert all(call_id.startswith("call_") for call_id in first)


@pytest.mark.parametrize(
    ("written", "content", "arguments"),
    [
        ("Just words, 1 < 2.", "Just words, 1 < 2.", []),
        ("Ends in <", "Ends in <", []),
        (
            'Wait. <tool_call>\n{"name": "stop", "arguments": {"a": [1, "é"]}}\n</tool_call>',
            "Wait. ",
            ['{"a": [1, "é"]}'],
        ),
        ('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Pa', "", ['{"city": "Pa']),
    ],
    ids=["words", "a tag that does not come", "words and a call", "a call that is cut off"],
)
def test_output_is_taken_apart(subject, written, content, arguments):
    found = fold(subject.parts(subject.encode_plain(written), (), WEATHER))

    assert (found.content, [call["arguments"] for call in found.calls]) == (content, arguments)


def test_a_model_that_may_make_one_call_is_read_to_make_one(subject):
    text = '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'

    found = fold(subject.parts(subject.encode_plain(text * 2), (), replace(WEATHER, is_parallel=False)))

    assert len(found.calls) == 1


def test_a_bias_keeps_a_token_from_being_chosen(subject):
    if subject.engine.spec.engine == "simulated":
        pytest.skip("the simulated engine takes a bias and goes its way")
    first = subject.undisturbed(min_tokens=60)[0]

    assert subject.answer(max_tokens=1, logit_bias={first: -100.0}).ids != [first]


def test_bytes_of_tokens_join_to_the_text_of_the_output(subject):
    ids = subject.encode_plain("naïve 🦊 and 東京")

    assert b"".join(subject.engine.token_bytes(token) for token in ids).decode() == "naïve 🦊 and 東京"


def test_a_json_schema_is_followed(subject):
    answer = subject.answer("Give me a person as JSON.", json_schema=SCHEMA, max_tokens=100)

    jsonschema.validate(json.loads(subject.text(answer.ids)), SCHEMA)
    assert answer.finish is FinishReason.STOP


def test_a_json_object_parses(subject):
    answer = subject.answer('Repeat this: {"a": 1}', json_object=True, max_tokens=60)

    assert isinstance(json.loads(subject.text(answer.ids)), dict)


def test_a_schema_that_cannot_be_followed_is_rejected_and_the_engine_lives_on(subject):
    with pytest.raises(PromptRejected, match="nonsense") as caught:
        subject.answer(json_schema={"type": "nonsense"})

    assert "/" not in str(caught.value)
    subject.engine.check()
    assert len(subject.answer(max_tokens=5).ids) == 5


@pytest.mark.parametrize("count", [0, 3])
def test_each_token_has_its_logprob_and_as_many_alternatives_as_asked_for(subject, count):
    answer = subject.answer(logprobs=count, max_tokens=6)

    assert [logprob.token_id for logprob in answer.logprobs] == answer.ids
    for logprob in answer.logprobs:
        assert logprob.logprob <= 0
        assert len(logprob.top) == count
        assert [value for _, value in logprob.top] == sorted((v for _, v in logprob.top), reverse=True)
        if count:
            assert logprob.top[0] == (logprob.token_id, logprob.logprob)


def test_no_logprobs_come_unasked(subject):
    assert subject.answer(max_tokens=3).logprobs == []


def test_a_token_has_a_text_of_its_own_even_if_it_is_special(subject, short):
    whole = subject.answer(short).ids

    assert subject.engine.token_text(whole[0]) == subject.text(whole[:1])
    assert subject.engine.token_text(whole[-1]).startswith("<|")


def test_a_seed_repeats_chance_and_no_seed_does_not(subject):
    same = [subject.answer(temperature=1.0, seed=7, max_tokens=30).ids for _ in range(2)]
    free = [subject.answer(temperature=1.0, max_tokens=30).ids for _ in range(2)]

    assert same[0] == same[1]
    assert free[0] != free[1]
    assert subject.answer(temperature=1.0, seed=8, max_tokens=30).ids != same[0]


def test_a_seeded_answer_goes_on_the_same_way_each_time_it_is_resumed(subject):
    whole = subject.answer(temperature=1.0, seed=7, max_tokens=30).ids

    rests = [subject.answer(temperature=1.0, seed=7, max_tokens=30, prior=whole[:10]).ids for _ in range(2)]

    assert rests[0] == rests[1]
    assert len(rests[0]) <= 20


def test_a_prompt_seen_before_is_found_in_the_cache_under_its_own_salt_alone(subject):
    prompt = "The sea was calm that day. " * 60

    cached = [subject.answer(prompt, salt=salt, max_tokens=2).deltas[0].cached_tokens for salt in "aab"]

    assert cached[0] == 0
    assert cached[1] > 0
    assert cached[2] == 0


def test_calls_at_once_share_the_engine_s_steps(subject):
    def seconds(count):
        calls = [subject.call(f"Story number {n}", max_tokens=40, ignore_eos=True) for n in range(count)]
        started_at = time.monotonic()
        answers = subject.answers(calls)
        assert all(len(answer.ids) == 40 for answer in answers)
        return time.monotonic() - started_at

    one = min(seconds(1) for _ in range(2))
    assert seconds(8) < 5 * one


def test_more_calls_than_slots_wait_their_turn(subject):
    calls = [subject.call(f"Story number {n}", max_tokens=10, ignore_eos=True) for n in range(11)]

    assert [len(answer.ids) for answer in subject.answers(calls)] == [10] * 11


@pytest.mark.parametrize("how", ["close", "cancel"])
def test_a_call_that_nobody_reads_any_more_frees_its_slot(subject, how):
    """Calls that would hold every slot for 1,500 steps are given up; a new one finds room within a few."""
    engine = subject.engine

    async def give_up_closing(calls):
        readers = [engine.generate(call) for call in calls]
        await asyncio.gather(*(anext(reader) for reader in readers))
        await asyncio.gather(*(reader.aclose() for reader in readers))

    async def read_on(call, has_begun):
        async with aclosing(engine.generate(call)) as deltas:
            async for _ in deltas:
                has_begun.set()

    async def give_up_cancelling(calls):
        begun = [asyncio.Event() for _ in calls]
        readers = [asyncio.ensure_future(read_on(*pair)) for pair in zip(calls, begun, strict=True)]
        await asyncio.gather(*(has_begun.wait() for has_begun in begun))
        for reader in readers:
            reader.cancel()
        ends = await asyncio.gather(*readers, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)

    async def run():
        calls = [subject.call(f"Story {n}", max_tokens=1500, ignore_eos=True) for n in range(engine.slots)]
        await (give_up_closing if how == "close" else give_up_cancelling)(calls)
        started_at = time.monotonic()
        await subject.read(subject.call("Hello", max_tokens=2, ignore_eos=True))
        waited = time.monotonic() - started_at
        started_at = time.monotonic()
        await subject.read(subject.call("Hello", max_tokens=40, ignore_eos=True))
        return waited, time.monotonic() - started_at

    waited, forty_steps = subject.loop.run(run())
    assert waited < 2 * forty_steps


def test_of_calls_that_wait_the_more_urgent_one_is_read_first(subject):
    ended = []

    async def read(name, call):
        await subject.read(call)
        ended.append(name)

    async def crowd():
        running = [
            asyncio.create_task(read("running", subject.call(max_tokens=40 + n, ignore_eos=True)))
            for n in range(subject.engine.slots)
        ]
        await asyncio.sleep(0.1)  # they are in the engine before the others come
        late = [
            asyncio.create_task(read(name, subject.call(max_tokens=3, ignore_eos=True, priority=priority)))
            for name, priority in (("batch", 1), ("batch", 1), ("interactive", 0))
        ]
        await asyncio.gather(*running, *late)

    subject.loop.run(crowd())
    assert [name for name in ended if name != "running"] == ["interactive", "batch", "batch"]


def test_the_share_of_the_kv_cache_in_use_is_a_share(subject):
    subject.answer(max_tokens=5)
    use = subject.engine.kv_use()
    assert use is None or 0 <= use <= 1


def test_a_call_closed_before_its_first_delta_leaves_nothing_behind(subject):
    async def close_early():
        for _ in range(3 * subject.engine.slots):
            deltas = subject.engine.generate(subject.call(max_tokens=1500, ignore_eos=True))
            waiting = asyncio.ensure_future(anext(deltas))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await deltas.aclose()
        return await subject.read(subject.call("Hello", max_tokens=3, ignore_eos=True))

    assert len(subject.loop.run(close_early(), timeout=60).ids) == 3


def test_a_running_engine_passes_its_check(subject):
    subject.engine.check()


def test_stopping_ends_what_runs_and_can_be_repeated(subject):
    """The last of this module: it stops the module's engine, and the fixture stops it again."""

    async def stop_while_reading():
        calls = [subject.call(f"Story {n}", max_tokens=1500, ignore_eos=True) for n in range(3)]
        readers = [subject.engine.generate(call) for call in calls]
        await asyncio.gather(*(anext(reader) for reader in readers))
        ends = asyncio.gather(*(_drain(reader) for reader in readers), return_exceptions=True)
        await subject.engine.stop()
        return await ends

    assert [type(end) for end in subject.loop.run(stop_while_reading())] == [EngineDead] * 3
    with pytest.raises(EngineDead):
        subject.engine.check()
    with pytest.raises(EngineDead):
        subject.answer()


async def _drain(reader) -> None:
    async for _ in reader:
        pass
