"""Parts of output put together, and compared with what was shown when they come again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.jobs import parts as parts_of
from app.jobs.log import Output
from app.openai import fold
from app.openai.errors import OutputReplaced
from app.openai.fold import Shown

TEXTS = st.lists(st.text(alphabet="ab", min_size=1, max_size=3), max_size=8)


def show(shown, texts, offset=0):
    """What is shown of texts that follow one another from `offset` on."""
    said = []
    for text in texts:
        said += shown.accept(offset, [parts_of.text(text)], len(text))
        offset += len(text)
    return "".join(part["text"] for part in said)


def test_a_text_is_a_message_of_content_alone():
    made = fold.fold("Hi")
    assert (made.content, made.reasoning, made.calls, made.content_logprobs) == ("Hi", "", [], [])


def test_parts_make_content_reasoning_and_calls():
    made = fold.fold([
        parts_of.reasoning("Hm", 2), parts_of.reasoning("m", 1), parts_of.text("So"),
        parts_of.call(0, "c0", "f"), parts_of.arguments(0, '{"a"'), parts_of.call(1, "c1", "g"),
        parts_of.arguments(0, ":1}"),
    ])  # fmt: skip
    assert (made.content, made.reasoning, made.reasoning_tokens) == ("So", "Hmm", 3)
    assert [(call.id, call.name, call.arguments) for call in made.calls] == [
        ("c0", "f", '{"a":1}'),
        ("c1", "g", ""),
    ]


def test_logprobs_of_plain_text_are_those_of_its_content():
    entry = {"token": "Hi", "logprob": -0.5}
    assert fold.fold(fold.parts_of_job(Output("Hi", (1,), (entry,)))).content_logprobs == [entry]
    assert fold.parts_of({"delta": "Hi", "logprobs": [entry]})[0]["logprobs"] == [entry]


def test_a_piece_that_shows_nothing_yet_has_no_parts():
    assert fold.parts_of({"delta": ""}) == []
    assert fold.parts_of({"delta": "<tool", "parts": []}) == []


@given(TEXTS, TEXTS, st.data())
def test_what_comes_again_cut_otherwise_is_shown_once(texts, more, data):
    shown = Shown()
    assert show(shown, texts) == "".join(texts)
    whole = "".join(texts + more)
    offset = data.draw(st.integers(0, len("".join(texts))))
    shown.rewind(offset)
    again, rest = [], whole[offset:]
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        again.append(rest[:size])
        rest = rest[size:]
    assert show(shown, again, offset) == "".join(more)
    shown.finish()


@given(TEXTS, st.data())
def test_what_comes_again_and_is_not_the_same_is_refused(texts, data):
    shown = Shown()
    show(shown, [*texts, "z"])
    shown.rewind(data.draw(st.integers(0, len("".join(texts)))))
    with pytest.raises(OutputReplaced):
        show(shown, ["".join(texts) + "y"])


def test_an_end_before_what_was_shown_is_refused():
    shown = Shown()
    show(shown, ["Hello"])
    shown.rewind(3)
    with pytest.raises(OutputReplaced):
        shown.finish()


def test_a_call_that_comes_again_is_shown_once_though_its_markup_is_longer():
    shown = Shown()
    call, written = parts_of.call(0, "c0", "f"), parts_of.arguments(0, "{}")
    assert shown.accept(0, [], 6) == []
    assert shown.accept(6, [call], 10) == [call]
    assert shown.accept(16, [written], 4) == [written]
    shown.rewind(16)
    assert shown.accept(16, [written], 4) == []
    shown.rewind(6)
    assert shown.accept(6, [call, written], 14) == []
    shown.finish()


def test_a_call_of_another_name_is_another_output():
    shown = Shown()
    shown.accept(0, [parts_of.call(0, "c0", "f")], 4)
    shown.rewind(0)
    with pytest.raises(OutputReplaced):
        shown.accept(0, [parts_of.call(0, "c0", "g")], 4)


def test_tokens_of_reasoning_are_counted_once():
    shown = Shown()
    shown.accept(0, [parts_of.reasoning("Hm", 1)], 2)
    shown.accept(2, [parts_of.reasoning("m", 1)], 1)
    shown.rewind(2)
    assert shown.reasoning_tokens == 1
    shown.accept(2, [parts_of.reasoning("m", 1)], 1)
    assert shown.reasoning_tokens == 2


def test_what_was_held_back_until_the_end_comes_again_with_it():
    shown = Shown()
    shown.accept(0, [], 2)
    assert shown.accept(2, [parts_of.text("<t")], 0) == [parts_of.text("<t")]
    shown.rewind(2)
    assert shown.accept(2, [parts_of.text("<t")], 0) == []
    shown.finish()


def test_neighbours_of_a_kind_are_shown_as_one():
    shown = Shown()
    pieces = [parts_of.text("a"), parts_of.text("b"), parts_of.call(0, "c0", "f"), parts_of.arguments(0, "{}")]
    assert shown.accept(0, pieces, 9) == [
        parts_of.text("ab"),
        {**parts_of.call(0, "c0", "f"), "arguments": "{}"},
    ]
