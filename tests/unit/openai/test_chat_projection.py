"""A chat completion says the same whole and in chunks, whatever its choices' logs hold and in any order."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from app.jobs import parts as part
from app.jobs.states import Status
from app.openai.chat import completion
from app.openai.chat.chunks import Projector
from config.queues import Tier
from tests.openai_contract import CHAT, CHUNK, faults
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

# Of a message; the SDK adds what it knows besides, as null.
ALWAYS = {"content", "refusal"}


@st.composite
def calls(draw):
    """One to three choices of a call, with or without parts and logprobs."""
    logprobs = draw(st.booleans())
    pieces = draw(st.sampled_from([plain_pieces, parsed_pieces]))(logprobs=logprobs)
    asked = {"logprobs": 2 if logprobs else None}
    tier = draw(st.sampled_from(Tier))
    return draw(logs(pieces, draw(st.integers(1, 3)), request=asked, tier=tier))


def described(found):
    return completion.describe([log.job for log in found], [log.output for log in found])


def told(found, order, **options):
    projector = Projector([log.job for log in found], **options)
    chunks = [chunk for index, frame in order for chunk in projector.feed(index, frame)]
    assert projector.is_over
    return [*chunks, *projector.finish()]


def in_turn(found):
    return [(index, frame) for index, log in enumerate(found) for frame in log.live]


def joined(chunks):
    """A completion out of chunks, as the SDK joins them. Beside calls an empty content is as good as none."""
    state = ChatCompletionStreamState()
    for chunk in chunks:
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    made = state.current_completion_snapshot.to_dict()
    for choice in made["choices"]:
        said = choice["message"].items()
        choice["message"] = {name: value for name, value in said if value is not None or name in ALWAYS}
        for call in choice["message"].get("tool_calls") or ():
            call.pop("index")
            call["function"].pop("parsed_arguments", None)
        if choice["message"].get("tool_calls"):
            choice["message"]["content"] = choice["message"]["content"] or None
    made.pop("system_fingerprint")
    return made


@given(calls(), st.data())
def test_chunks_joined_by_the_sdk_are_the_completion(found, data):
    order = data.draw(interleaved(*(log.live for log in found)))
    assert joined(told(found, order, include_usage=True)) == described(found)


@given(calls(), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_a_log_read_back_from_segments_tells_the_same(found, sizes):
    stored = [(index, frame) for index, log in enumerate(found) for frame in log.stored(sizes)]
    assert told(found, stored) == told(found, in_turn(found))


@given(calls(), st.booleans())
def test_what_is_said_is_what_openai_promises(found, include_usage):
    assert faults(CHAT, described(found)) == []
    for chunk in told(found, in_turn(found), include_usage=include_usage):
        assert faults(CHUNK, chunk) == []


@st.composite
def rewound(draw):
    """A log, and its frames where the output from some piece on is void and comes again."""
    logprobs = draw(st.booleans())
    pieces = draw(st.sampled_from([plain_pieces, parsed_pieces]))(logprobs=logprobs)
    (log,) = draw(logs(pieces.filter(bool), 1, request={"logprobs": 2 if logprobs else None}))
    reached = draw(st.integers(1, len(log.pieces)))
    back = draw(st.integers(0, reached))
    seq = log.FIRST_SEQ + reached
    frames = [*log.opening, *(log.delta(index) for index in range(reached)), rewind(seq, log.offsets[back])]
    frames += [log.delta(index, seq + 1 + index) for index in range(back, len(log.pieces))]
    return log, [*frames, log.ending(seq + 1 + len(log.pieces))]


@given(rewound())
def test_output_that_comes_again_is_not_told_twice(case):
    log, frames = case
    again = told([log], [(0, frame) for frame in frames], include_usage=True)
    assert joined(again) == described([log])


@given(rewound().filter(lambda case: len(case[1]) > 5), st.data())
def test_usage_counts_reasoning_that_came_again_once(case, data):
    log, frames = case
    usage = told([log], [(0, frame) for frame in frames], include_usage=True)[-1]["usage"]
    assert usage == described([log])["usage"]


def fed(log, frames):
    projector = Projector([log.job])
    return projector, [chunk for frame in frames for chunk in projector.feed(0, frame)]


def test_other_output_in_place_of_what_was_told_ends_the_stream_with_an_error():
    log = Log(job(), [Piece("one"), Piece("two")])
    other = Log(job(), [Piece("one"), Piece("TWO")])
    frames = [log.delta(0), log.delta(1), rewind(5, 3), other.delta(1, 6), log.ending(7)]
    projector, chunks = fed(log, frames)
    error = chunks[-1].pop("error")
    assert (error["code"], error["type"], error["param"]) == ("output_replaced", "server_error", None)
    assert projector.is_over
    assert [chunk["choices"][0]["delta"].get("content") for chunk in chunks[:-1]] == ["", "one", "two"]
    assert projector.finish() == []


def test_an_end_before_what_was_told_came_again_is_an_error():
    log = Log(job(), [Piece("one"), Piece("two")])
    _, chunks = fed(log, [log.delta(0), log.delta(1), rewind(5, 3), log.ending(6)])
    assert chunks[-1]["error"]["code"] == "output_replaced"


def test_output_before_its_start_is_void_to_who_comes_later():
    log = Log(job(output_start_seq=5), [Piece("void"), Piece("void")])
    good = Log(job(), [Piece("good")])
    frames = [*log.opening, log.delta(0), log.delta(1), rewind(5, 0), good.delta(0, 6), log.ending(7)]
    _, chunks = fed(log, frames)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "good"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (
            {"status": Status.FAILED, "error_code": "invalid_prompt", "error_message": "No."},
            {"message": "No.", "type": "invalid_request_error", "code": "invalid_prompt", "param": None},
        ),
        (
            {"status": Status.FAILED, "error_code": "worker_lost", "error_message": "Gone."},
            {"message": "Gone.", "type": "server_error", "code": "worker_lost", "param": None},
        ),
        (
            {"status": Status.EXPIRED},
            {
                "message": "The job's deadline passed before it could start.",
                "type": "server_error",
                "code": "expired",
                "param": None,
            },
        ),
    ],
)
def test_a_failed_choice_ends_the_stream_for_all(columns, expected):
    bad, good = Log(job(0, **columns), [Piece("x")]), Log(job(1), [Piece("y")])
    projector = Projector([bad.job, good.job], include_usage=True)
    chunks = [chunk for frame in bad.live for chunk in projector.feed(0, frame)]
    assert chunks[-1] == {"error": expected}
    assert projector.is_over
    assert [projector.feed(1, frame) for frame in good.live] == [[]] * 4
    assert projector.finish() == []


def test_all_choices_open_before_any_goes_on_and_in_order():
    found = [Log(job(index), [Piece("x")]) for index in range(3)]
    chunks = told(found, [(2, frame) for frame in found[2].live] + in_turn(found[:2]))
    assert [chunk["choices"][0]["index"] for chunk in chunks] == [0, 1, 2, 2, 2, 0, 0, 1, 1]
    assert [chunk["choices"][0]["delta"].get("role") for chunk in chunks[:4]] == ["assistant"] * 3 + [None]


def test_a_call_says_its_id_and_name_once_and_its_index_always():
    said = [part.call(0, "call_a", "look"), part.arguments(0, "{}"), part.call(1, "call_b", "find")]
    log = Log(job(), [Piece("<", said[:1]), Piece(">", said[1:])])
    chunks = told([log], in_turn([log]))
    assert [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())] == [
        {"index": 0, "id": "call_a", "type": "function", "function": {"name": "look", "arguments": ""}},
        {"index": 0, "function": {"arguments": "{}"}},
        {"index": 1, "id": "call_b", "type": "function", "function": {"name": "find", "arguments": ""}},
    ]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("status", [Status.INCOMPLETE, Status.CANCELLED])
def test_what_was_cut_off_says_length_even_with_calls(status):
    log = Log(job(status=status), [Piece("<", [part.call(0, "call_a", "look")])])
    assert described([log])["choices"][0]["finish_reason"] == "length"
    assert told([log], in_turn([log]))[-1]["choices"][0]["finish_reason"] == "length"


def test_one_prompt_counts_once_and_every_answer_counts():
    found = [
        Log(job(0, input_tokens=10, cached_tokens=0, output_tokens=2)),
        Log(job(1, input_tokens=10, cached_tokens=8, output_tokens=3)),
    ]
    usage: dict[str, Any] = described(found)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (10, 5, 15)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0


def test_only_the_usage_chunk_has_usage_and_no_choices():
    log = Log(job(), [Piece("x")])
    *chunks, last = told([log], in_turn([log]), include_usage=True)
    assert {chunk["usage"] for chunk in chunks} == {None}
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 10)
    assert all("usage" not in chunk for chunk in told([log], in_turn([log])))


def test_every_chunk_has_the_same_head():
    found = [Log(job(index, tier=Tier.BATCH), [Piece("x")]) for index in range(2)]
    chunks = told(found, in_turn(found), include_usage=True)
    heads = {
        tuple(chunk[name] for name in ("id", "object", "created", "model", "service_tier")) for chunk in chunks
    }
    assert heads == {(f"chatcmpl-{0:032x}", "chat.completion.chunk", 1788220800, "m", "flex")}


def test_logprobs_are_those_of_the_content():
    entries = [entry("x", -1.0, [("y", -2.0)])]
    log = Log(job(request={"logprobs": 1}), [Piece("x", None, entries)])
    assert described([log])["choices"][0]["logprobs"] == {"content": entries, "refusal": None}
    assert described([Log(job(), [Piece("x")])])["choices"][0]["logprobs"] is None


def test_the_server_can_end_a_stream_with_a_reason():
    log = Log(job(), [Piece("x")])
    projector = Projector([log.job], include_usage=True)
    assert projector.broken("server_stopping", "Bye.")["error"]["code"] == "server_stopping"
    assert projector.is_over
    assert projector.finish() == []
