"""The simulated engine's reader, and output taken apart as a job does it: the same parts however it is cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.jobs import parts
from app.jobs.prompts import Prompt, ToolUse
from app.tokens.simulated import encode_text, write_call
from tests.engine.conftest import WEATHER, running, simulated_spec
from tests.engine.folding import Folded, fold
from workers.engine.calls import tool_call_id
from workers.engine.simulated_reading import MarkupReader
from workers.engine.simulated_words import VOCABULARY
from workers.output import TextAssembler
from workers.reading import Reading, is_same

VALUES = st.none() | st.integers() | st.text('ab"\\{}[]<', max_size=6)
NESTED = st.recursive(VALUES, lambda inner: st.lists(inner, max_size=2), max_leaves=4)
ARGUMENTS = st.dictionaries(st.text(max_size=4), NESTED, max_size=3)
SAYING = st.text("ab <>/tk{}", max_size=12)
SLIPS = [
    "<tool_call>",
    "</tool_call>",
    "<think>",
    '<tool_call>\n{"name": "f", "arg',
    "<tool_call> no </tool_call>",
]
PIECES = st.one_of(
    st.builds(lambda thought: f"<think>{thought}</think>", SAYING),
    st.builds(write_call, st.sampled_from(["f", "get_weather"]), ARGUMENTS),
    SAYING,
    st.sampled_from(SLIPS),
)
SCRIPT = st.lists(PIECES, min_size=1, max_size=6).map("".join).filter(bool)
STOPS = st.lists(st.sampled_from(["ab", "<t", "}", "</", "a b"]), min_size=1, max_size=2)


def read(text, cuts=(), **options) -> Folded:
    reader = MarkupReader("job_1", calls=True, **options)
    found, start = [], 0
    for end in [*sorted({min(cut, len(text)) for cut in cuts}), len(text)]:
        found += reader.feed(text[start:end], [7])
        start = end
    return fold([*found, *reader.finish()])


@given(SCRIPT, st.lists(st.integers(0, 200), max_size=8))
def test_the_parts_say_the_same_however_the_text_is_cut(text, cuts):
    assert read(text, cuts) == read(text, range(len(text)))


@given(st.text("<>/abctehinkol_ ", max_size=60))
def test_what_is_no_markup_is_said_as_it_stands(text):
    if "<think>" not in text and "<tool_call>" not in text:
        assert read(text, range(len(text))) == Folded(content=text)


@given(SAYING, ARGUMENTS, ARGUMENTS)
def test_thoughts_words_and_calls_come_apart(thought, first, second):
    text = f"<think>{thought}</think>Wait.{write_call('f', first)}\n{write_call('g', second)}"

    found = read(text, range(len(text)))

    if "<" not in thought:
        assert found.reasoning == thought
        assert found.content == "Wait."
        assert [(call["name"], json.loads(call["arguments"])) for call in found.calls] == [
            ("f", first),
            ("g", second),
        ]
        assert [call["id"] for call in found.calls] == [tool_call_id("job_1", 0), tool_call_id("job_1", 1)]


def test_a_model_that_may_make_one_call_makes_one():
    text = write_call("f", {}) + "\n" + write_call("g", {"a": 1})

    assert [call["name"] for call in read(text, is_parallel=False).calls] == ["f"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Say <tool", Folded(content="Say <tool")),
        ('<tool_call>\n{"name": "f"', Folded(content='<tool_call>\n{"name": "f"')),
        ("<think>so far", Folded(reasoning="so far")),
        ("<think>so far</th", Folded(reasoning="so far</th")),
    ],
)
def test_what_is_cut_off_keeps_what_there_is(text, expected):
    assert read(text, range(len(text))) == expected


def test_a_call_that_is_cut_off_keeps_its_beginning():
    found = read('<tool_call>\n{"name": "f", "arguments": {"city": "Pa')

    assert [(call["name"], call["arguments"]) for call in found.calls] == [("f", '{"city": "Pa')]


def test_where_nothing_may_be_called_a_call_is_text():
    reader = MarkupReader("job_1", calls=False)
    text = write_call("f", {})

    assert fold([*reader.feed(text, [1]), *reader.finish()]) == Folded(content=text)


def take_apart(token_ids, stop=(), cut=None):
    """As a job does, in pieces of one token; after `cut` tokens by a second attempt."""
    found = []
    assembler, reading = None, None
    for at, token in enumerate(token_ids):
        if assembler is None or at == cut:
            assembler = TextAssembler(VOCABULARY.decoder(), stop)
            reading = Reading(MarkupReader("job_1", calls=True))
            for earlier in token_ids[:at]:
                reading.feed(earlier, assembler.feed(earlier), assembler.held)
            assert is_same(reading.take(), found)
        reading.feed(token, assembler.feed(token), assembler.held)
        found += reading.take()
        if assembler.is_stopped:
            break
    reading.finish(assembler.finish())
    return [*found, *reading.take()]


@given(SCRIPT, st.integers(1, 60))
def test_a_second_attempt_finds_the_same_parts(text, cut):
    ids = encode_text(text)

    assert is_same(take_apart(ids, cut=cut % len(ids)), take_apart(ids))


@given(SCRIPT, STOPS, st.integers(1, 60))
def test_a_stop_string_ends_the_parts_where_it_ends_the_text(text, stop, cut):
    ids = encode_text(text)
    shown = text[: min([at for one in stop if (at := text.find(one)) >= 0] or [len(text)])]

    found = take_apart(ids, stop, cut % len(ids))

    assert fold(found) == read(shown, range(len(shown)))


def test_only_tokens_of_the_thought_count_as_reasoning():
    ids = encode_text("<think> ship sea storm</think> calm")

    assert parts.reasoning_tokens(take_apart(ids)) == len(encode_text(" ship sea storm"))


@pytest.fixture
def subject():
    spec = simulated_spec().model_copy(update={"tool_parser": "hermes", "reasoning_parser": "think"})
    with running(spec) as subject:
        yield subject


def outcome(subject, prompt, use=None, **sampling) -> Folded:
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    ids = subject.engine.encode(Prompt(messages, list(use.tools) if use else []))
    answer = subject.answer(ids, tool_use=use, max_tokens=300, **sampling)
    return fold(subject.parts(answer.ids, ids, use))


def test_a_prompt_directs_thoughts_and_calls(subject):
    cues = '[[think=Let me see.]][[call=get_weather {"city": "Paris", "days": [[1]]}]][[call=get_weather]]'

    found = outcome(subject, cues, WEATHER)

    assert (found.reasoning, found.content) == ("Let me see.", "")
    assert [json.loads(call["arguments"]) for call in found.calls] == [{"city": "Paris", "days": [[1]]}, {}]


def test_what_stands_after_a_call_is_said_once_its_result_is_there(subject):
    cues = '[[say=I look.]][[call=get_weather {"city": "Paris"}]][[say=It is sunny.]]'
    asked = [{"role": "user", "content": cues}]
    first = outcome(subject, asked, WEATHER)
    function = {"name": "get_weather", "arguments": {"city": "Paris"}}
    call = {"id": first.calls[0]["id"], "type": "function", "function": function}
    answered = [
        *asked,
        {"role": "assistant", "content": first.content, "tool_calls": [call]},
        {"role": "tool", "content": "sunny", "tool_call_id": call["id"], "name": "get_weather"},
    ]

    second = outcome(subject, answered, WEATHER)

    assert first.content == "I look."
    assert second == Folded(content="It is sunny.")


def test_cues_of_an_earlier_message_are_over(subject):
    earlier = [{"role": "user", "content": "[[say=Ahoy]]"}, {"role": "assistant", "content": "Ahoy"}]

    assert outcome(subject, [*earlier, {"role": "user", "content": "[[say=Aye]]"}]).content == "Aye"
    assert "Ahoy" not in outcome(subject, [*earlier, {"role": "user", "content": "And now?"}]).content


def test_without_tools_a_call_is_not_made(subject):
    assert outcome(subject, '[[say=No.]][[call=get_weather {"city": "Paris"}]]') == Folded(content="No.")


def test_a_call_that_is_no_json_is_made_as_it_stands(subject):
    found = outcome(subject, "[[call=get_weather {city}]]", WEATHER)

    assert [call["arguments"] for call in found.calls] == ["{city}"]


def test_without_cues_and_tools_there_is_nothing_to_read():
    with running(simulated_spec(cues=False)) as subject:
        assert subject.engine.reader(None, [], "job_1") is None
        assert subject.engine.reader(ToolUse(WEATHER.tools), [], "job_1") is not None


@given(st.text("ab <é🦊", min_size=1, max_size=12), SAYING)
def test_each_token_of_what_is_said_has_its_logprob_once(said, thought):
    if "<think>" in said or "</think>" in thought:
        return
    ids = encode_text(f"<think>{thought}</think>") + encode_text(said)
    reading = Reading(MarkupReader("job_1", calls=True))
    assembler = TextAssembler(VOCABULARY.decoder(), ())
    for at, token in enumerate(ids):
        logprob = {"at": at, "bytes": list(VOCABULARY.token_bytes(token))}
        reading.feed(token, assembler.feed(token), 0, logprob)
    reading.finish(assembler.finish())

    given = [entry["at"] for part in reading.take() for entry in part.get("logprobs", ())]
    assert given == list(range(len(ids) - len(encode_text(said)), len(ids)))
