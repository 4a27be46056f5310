"""A completion says the same whole and in chunks, whatever its choices' logs hold and in any order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.jobs import parts as part
from app.jobs.states import Status
from app.openai.completions import completion
from app.openai.completions.chunks import Projector
from tests.openai_contract import COMPLETION, faults
from tests.unit.openai.chat_logs import (
    Log,
    Piece,
    entry,
    interleaved,
    job,
    logs,
    parsed_pieces,
    plain_pieces,
    rewind,
)


@st.composite
def calls(draw):
    """One or two prompts with one or two choices each."""
    logprobs, echo, n = draw(st.booleans()), draw(st.booleans()), draw(st.integers(1, 2))
    asked = {"logprobs": 2 if logprobs else None, "input": draw(st.text(max_size=5))}
    count = n * draw(st.integers(1, 2))
    return draw(logs(plain_pieces(logprobs=logprobs), count, request=asked, echo={"n": n, "echo": echo}))


def described(found):
    return completion.describe([log.job for log in found], [log.output for log in found])


def told(found, order, **options):
    projector = Projector([log.job for log in found], **options)
    chunks = [chunk for index, frame in order for chunk in projector.feed(index, frame)]
    assert projector.is_over
    return [*chunks, *projector.finish()]


def in_turn(found):
    return [(index, frame) for index, log in enumerate(found) for frame in log.live]


def joined(chunks, found):
    made = {**chunks[0], "choices": []}
    for index, log in enumerate(found):
        mine = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
        named = [choice["logprobs"] for choice in mine if choice["logprobs"]]
        lists = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        logprobs = {name: [value for one in named for value in one[name]] for name in lists}
        made["choices"].append(
            {
                "index": index,
                "text": "".join(choice["text"] for choice in mine),
                "logprobs": None if log.job.request["logprobs"] is None else logprobs,
                "finish_reason": mine[-1]["finish_reason"],
            }
        )
    return {**made, "usage": chunks[-1]["usage"]}


@given(calls(), st.data())
def test_chunks_joined_are_the_completion(found, data):
    order = data.draw(interleaved(*(log.live for log in found)))
    assert joined(told(found, order, include_usage=True), found) == described(found)


@given(calls(), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_a_log_read_back_from_segments_tells_the_same(found, sizes):
    stored = [(index, frame) for index, log in enumerate(found) for frame in log.stored(sizes)]
    assert told(found, stored) == told(found, in_turn(found))


def documented(chunk):
    """OpenAI streams a finish_reason of null until the end, whatever its document says."""
    choices = [{**choice, "finish_reason": choice["finish_reason"] or "stop"} for choice in chunk["choices"]]
    return {**chunk, "choices": choices}


@given(calls())
def test_what_is_said_is_what_openai_promises(found):
    assert faults(COMPLETION, described(found)) == []
    for chunk in told(found, in_turn(found)):
        assert faults(COMPLETION, documented(chunk)) == []
    assert faults(COMPLETION, told(found, in_turn(found), include_usage=True)[-1]) == []


@given(parsed_pieces())
def test_its_text_is_the_models_own_words(pieces):
    log = Log(job(), pieces)
    words = "".join(piece.raw for piece in pieces)
    chunks = told([log], in_turn([log]), include_usage=True)
    assert described([log])["choices"][0]["text"] == words
    assert joined(chunks, [log]) == described([log])
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"


def test_an_echo_comes_first_in_every_choice():
    found = [Log(job(index, echo={"n": 2, "echo": True}), [Piece(f"{index}")]) for index in range(2)]
    assert [choice["text"] for choice in described(found)["choices"]] == ["Say hi0", "Say hi1"]
    chunks = told(found, in_turn(found))
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["Say hi", "Say hi", "0", "", "1", ""]


def test_each_prompt_counts_once():
    found = [
        Log(job(index, input_tokens=10 + index // 2, output_tokens=1, echo={"n": 2})) for index in range(4)
    ]
    usage = described(found)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (21, 4)


def test_a_token_starts_where_its_first_character_does():
    smile = "😀".encode()
    halves = [{**entry("�"), "bytes": list(smile[:2])}, {**entry("�"), "bytes": list(smile[2:])}]
    entries = [entry("aé"), *halves, entry("b")]
    log = Log(job(request={"logprobs": 0}), [Piece("aé", None, entries[:1]), Piece("😀b", None, entries[1:])])
    (choice,) = described([log])["choices"]
    assert choice["logprobs"]["text_offset"] == [0, 2, 2, 3]
    assert choice["logprobs"]["tokens"] == ["aé", "�", "�", "b"]


def test_the_token_itself_is_among_its_likeliest():
    found = entry("a", -3.0, [("b", -0.5), ("c", -1.0)])
    log = Log(job(request={"logprobs": 2}), [Piece("a", None, [found])])
    (choice,) = described([log])["choices"]
    assert choice["logprobs"]["top_logprobs"] == [{"b": -0.5, "c": -1.0, "a": -3.0}]
    assert choice["logprobs"]["token_logprobs"] == [-3.0]


def test_of_tokens_that_read_alike_the_likeliest_stands():
    log = Log(job(request={"logprobs": 2}), [Piece("a", None, [entry("�", -3.0, [("�", -0.5)])])])
    assert described([log])["choices"][0]["logprobs"]["top_logprobs"] == [{"�": -0.5}]


@pytest.mark.parametrize(
    ("status", "reason"),
    [(Status.COMPLETED, "stop"), (Status.INCOMPLETE, "length"), (Status.CANCELLED, "length")],
)
def test_calls_in_its_text_are_text(status, reason):
    log = Log(job(status=status), [Piece("<call>", [part.call(0, "call_1", "look")])])
    assert described([log])["choices"][0]["finish_reason"] == reason
    assert told([log], in_turn([log]))[-1]["choices"][0]["finish_reason"] == reason


def test_output_that_comes_again_is_told_once_and_other_output_never():
    log, other = Log(job(), [Piece("one"), Piece("two")]), Log(job(), [Piece("one"), Piece("TWO")])
    start = [log.delta(0), log.delta(1), rewind(5, 3)]
    same = told([log], [(0, frame) for frame in [*start, log.delta(1, 6), log.ending(7)]])
    assert "".join(chunk["choices"][0]["text"] for chunk in same) == "onetwo"
    broken = told([log], [(0, frame) for frame in [*start, other.delta(1, 6), log.ending(7)]])
    assert broken[-1]["error"]["code"] == "output_replaced"


def test_a_failed_choice_ends_the_stream_for_all():
    columns = {"status": Status.FAILED, "error_code": "engine_dead", "error_message": "Gone."}
    found = [Log(job(0, **columns), [Piece("x")]), Log(job(1), [Piece("y")])]
    chunks = told(found, in_turn(found), include_usage=True)
    assert [chunk["choices"][0]["text"] for chunk in chunks[:-1]] == ["x"]
    assert chunks[-1]["error"] == {
        "message": "Gone.",
        "type": "server_error",
        "code": "engine_dead",
        "param": None,
    }
