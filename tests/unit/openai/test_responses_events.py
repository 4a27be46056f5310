"""A job's log as stream events of the Responses API, whatever became of the job and whoever reads when."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai._types import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from app.jobs import parts as parts_of
from app.jobs.states import Status
from app.openai.responses.events import Projector
from app.openai.responses.response import describe
from tests.openai_contract import RESPONSE, faults, faults_of_event
from tests.unit.openai.logs import AT, JOB_ID, Log, ended, logs, make_job, parsed_pieces, plain_pieces

EVENT = TypeAdapter(ResponseStreamEvent)

TERMINAL = {
    Status.COMPLETED: ("response.completed", "completed"),
    Status.INCOMPLETE: ("response.incomplete", "incomplete"),
    Status.CANCELLED: ("response.incomplete", "cancelled"),
    Status.FAILED: ("response.failed", "failed"),
    Status.EXPIRED: ("response.failed", "failed"),
}


def project(job, found, starting_after=None):
    projector = Projector(job, starting_after)
    events = [event for frame in found for event in projector.feed(frame)]
    assert projector.is_over
    return events


def live(log):
    """As one saw it who was there from the first moment: the job had not restarted then."""
    return project(make_job(), log.live)


def stored(log, starting_after=None):
    return project(log.job, log.stored, starting_after)


def a_log(*batches, status=Status.COMPLETED, echo=None):
    log = Log(status=status)
    log.event("job.queued", {"attempt": 0})
    log.event("job.in_progress")
    for batch in batches:
        log.output(batch, len(batch))
    log.event(status.event_type, ended(status))
    return log


def plain(*texts):
    return [(text, None, None) for text in texts]


def parsed(*parts):
    return [("x", list(one) if isinstance(one, tuple) else [one], None) for one in parts]


def types(events):
    return [event["type"].removeprefix("response.") for event in events]


def without_numbers(events):
    return [{name: value for name, value in event.items() if name != "sequence_number"} for event in events]


def test_a_text_has_openais_sequence_numbered_from_nought_without_a_gap():
    events = stored(a_log(plain("Hel", "lo")))
    assert types(events) == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
        "output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert [event["sequence_number"] for event in events] == list(range(10))
    assert events[0]["response"]["output"] == []
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "Hello"


def test_a_background_response_is_queued_once_it_is_created():
    log = a_log(plain("Hi"))
    events = project(make_job(echo={"background": True}), log.stored)
    assert types(events)[:3] == ["created", "queued", "in_progress"]
    assert [event["response"]["status"] for event in events[:3]] == ["queued", "queued", "in_progress"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_a_thought_and_an_answer_are_items_of_their_own():
    log = a_log(parsed(parts_of.reasoning("Hm", 2), parts_of.text("4")))
    events = stored(log)
    assert types(events)[2:-1] == [
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done",
        "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.done",
        "content_part.done", "output_item.done",
    ]  # fmt: skip
    final = events[-1]["response"]
    assert [item["type"] for item in final["output"]] == ["reasoning", "message"]
    assert final["usage"]["output_tokens_details"] == {"reasoning_tokens": 2}


def test_calls_of_functions_are_announced_streamed_and_done():
    call = [parts_of.call(0, "call_a", "add"), parts_of.arguments(0, '{"a"'), parts_of.arguments(0, ":1}")]
    other = (parts_of.call(1, "call_b", "now"), parts_of.arguments(1, "{}"))
    events = stored(a_log(parsed(*call, other)))
    assert types(events)[2:-1] == [
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta",
        "function_call_arguments.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta",
        "function_call_arguments.done", "output_item.done",
    ]  # fmt: skip
    first, second = events[-1]["response"]["output"]
    assert (first["call_id"], first["name"], first["arguments"]) == ("call_a", "add", '{"a":1}')
    assert (second["call_id"], second["status"]) == ("call_b", "completed")
    assert [event["name"] for event in events if "arguments.done" in event["type"]] == ["add", "now"]


def test_a_call_without_arguments_has_an_empty_object_of_them():
    events = stored(a_log(parsed(parts_of.call(0, "call_a", "now"))))
    done = next(event for event in events if "arguments.done" in event["type"])
    assert done["arguments"] == events[-1]["response"]["output"][0]["arguments"] == "{}"


def test_a_completed_response_without_any_output_has_an_empty_message():
    events = stored(a_log())
    assert types(events)[2:] == [
        "output_item.added", "content_part.added", "output_text.done", "content_part.done",
        "output_item.done", "completed",
    ]  # fmt: skip
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == ""


@pytest.mark.parametrize("status", TERMINAL)
def test_every_end_of_a_job_ends_its_stream_with_what_there_is(status):
    log = a_log(plain("Hel"), status=status)
    event = stored(log)[-1]
    assert (event["type"], event["response"]["status"]) == TERMINAL[status]
    (item,) = event["response"]["output"]
    assert item["status"] == ("completed" if status is Status.COMPLETED else "incomplete")
    assert item["content"][0]["text"] == "Hel"


def test_errors_have_codes_of_openais():
    log = a_log(status=Status.FAILED)
    assert stored(log)[-1]["response"]["error"] == {"code": "server_error", "message": "It broke."}
    log = a_log(status=Status.EXPIRED)
    assert stored(log)[-1]["response"]["error"]["code"] == "server_error"


def test_a_job_that_ends_before_it_starts_still_begins_with_created():
    log = Log()
    log.event("job.queued", {"attempt": 0})
    log.event("job.cancelled", ended(Status.CANCELLED))
    events = project(make_job(), log.live)
    assert types(events) == ["created", "incomplete"]


def test_logprobs_come_with_the_deltas_and_the_whole_text():
    entry = {"token": "Hi", "logprob": -0.1, "bytes": [72, 105], "top_logprobs": []}
    events = stored(a_log([("Hi", None, [entry])]))
    by_type = {event["type"]: event for event in events}
    assert by_type["response.output_text.delta"]["logprobs"] == [entry]
    assert by_type["response.output_text.done"]["logprobs"] == [entry]
    assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] == [entry]


def lost(before, after, status=Status.COMPLETED):
    """A log whose first attempt's output was shown and never stored."""
    log = Log(status=status)
    log.event("job.queued", {"attempt": 0})
    log.event("job.in_progress")
    log.output(before, 0)
    log.event("job.queued", {"attempt": 1, "output_offset": 0}, void=True)
    log.event("job.in_progress")
    log.output(after, len(after))
    log.event(status.event_type, ended(status))
    return log


def test_lost_output_that_comes_again_is_shown_once():
    events = live(lost(plain("Hel", "lo"), plain("H", "ello wo", "rld")))
    assert [event["delta"] for event in events if "delta" in event] == ["Hel", "lo", " wo", "rld"]
    assert types(events).count("in_progress") == 1
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "Hello world"


def test_lost_output_that_comes_differently_ends_the_stream_with_an_error():
    events = live(lost(plain("Hel", "lo"), plain("Help")))
    assert (events[-1]["type"], events[-1]["code"]) == ("error", "output_replaced")
    assert events[-1]["sequence_number"] > events[-2]["sequence_number"]
    assert not faults_of_event(events[-1])
    assert stored(lost(plain("Hel", "lo"), plain("Help")))[-1]["type"] == "response.completed"


def test_lost_output_that_never_comes_again_ends_the_stream_with_an_error():
    assert live(lost(plain("Hello"), plain("Hel")))[-1]["code"] == "output_replaced"
    assert live(lost(plain("Hello"), [], Status.FAILED))[-1]["type"] == "response.failed"


def test_a_cursor_among_lost_numbers_cannot_be_resumed():
    log = lost(plain("Hel", "lo"), plain("Hel", "lo"))
    cursor = next(event["sequence_number"] for event in live(log) if event.get("delta") == "lo")
    events = stored(log, cursor)
    assert [(event["type"], event["code"]) for event in events] == [("error", "output_replaced")]
    assert events[0]["sequence_number"] == cursor + 1


def restarted(status=Status.COMPLETED):
    log = Log(status=status)
    log.event("job.queued", {"attempt": 0})
    log.event("job.in_progress")
    log.output(plain("{", '"a'), 2)
    log.event("job.queued", {"attempt": 1, "reason": "preempted"})
    log.event("job.in_progress")
    log.event("output.rewind", {"offset": 0})
    log.output_start_seq, log.stored_raw = log.seq, 0
    log.output(plain("{", '"b'), 2)
    log.event(status.event_type, ended(status))
    return log


def test_who_comes_after_a_restart_sees_only_what_counts():
    events = stored(restarted())
    assert [event["delta"] for event in events if "delta" in event] == ["{", '"b']
    assert types(events)[-1] == "completed"


def test_who_saw_what_a_restart_threw_away_is_told_so():
    log = restarted()
    seen = live(log)
    assert seen[-1]["code"] == "output_replaced"
    cursor = next(event["sequence_number"] for event in seen if event.get("delta") == '"a')
    assert stored(log, cursor)[-1]["code"] == "output_replaced"
    assert stored(log, 1)[-1]["type"] == "response.completed"  # it had seen no output yet


def test_a_broken_stream_says_why_under_the_next_number():
    projector = Projector(make_job(), None)
    log = a_log(plain("Hi"))
    last = [event for frame in log.live[:3] for event in projector.feed(frame)][-1]
    event = projector.broken("server_stopping", "Come again.")
    assert event["sequence_number"] == last["sequence_number"] + 1
    assert not faults_of_event(event)
    assert projector.is_over
    assert projector.feed(log.live[3]) == []


def test_a_cursor_beyond_the_end_gets_nothing_and_still_ends():
    assert stored(a_log(plain("Hi")), 1_000) == []


@given(logs())
def test_a_follower_from_the_start_and_a_reader_after_the_end_get_the_same_response(log):
    seen, read = live(log), stored(log)
    assert without_numbers(seen)[-1]["response"]["output"] == without_numbers(read)[-1]["response"]["output"]
    assert "".join(e["delta"] for e in seen if "delta" in e) == "".join(
        e["delta"] for e in read if "delta" in e
    )
    assert seen[-1]["sequence_number"] == read[-1]["sequence_number"]


@given(plain_pieces() | parsed_pieces(), st.sampled_from(list(TERMINAL)))
def test_live_frames_and_stored_segments_give_the_same_events(pieces, status):
    log = a_log(pieces[:3], pieces[3:], status=status)
    assert live(log) == stored(log)


@settings(max_examples=40)
@given(logs())
def test_numbers_rise_and_every_event_is_openais(log):
    for events in (live(log), stored(log)):
        numbers = [event["sequence_number"] for event in events]
        assert numbers == sorted(set(numbers))
        assert types(events)[0] == "created"
        for event in events:
            assert not faults_of_event(event)


@given(logs())
def test_who_resumes_gets_just_what_is_missing(log):
    events = stored(log)
    for cursor in [event["sequence_number"] for event in events]:
        rest = [event for event in events if event["sequence_number"] > cursor]
        assert stored(log, cursor) == rest


@given(logs(), st.data())
def test_who_saw_it_live_resumes_later_without_a_loss_or_a_repetition(log, data):
    """Unless what was seen last is lost: then the answer is an error."""
    seen = live(log)
    index = data.draw(st.integers(0, len(seen) - 1))
    cursor = seen[index]["sequence_number"]
    rest = stored(log, cursor)
    if rest and rest[0]["type"] == "error":
        assert rest[0]["code"] == "output_replaced"
        return
    said = [*seen[: index + 1], *rest]
    assert said[-1]["response"]["output"] == seen[-1]["response"]["output"]
    assert "".join(e["delta"] for e in said if "delta" in e) == "".join(
        e["delta"] for e in seen if "delta" in e
    )
    assert types(said).count("output_item.added") == len(said[-1]["response"]["output"])


@given(logs())
def test_the_end_of_the_stream_is_what_a_retrieve_says(log):
    final = stored(log)[-1]["response"]
    assert final == describe(log.job, log.output_now)
    assert not faults(RESPONSE, final)


@settings(max_examples=40)
@given(logs())
def test_the_sdk_puts_the_same_response_together(log):
    state = ResponseStreamState(text_format=omit, input_tools=omit)
    for event in live(log):
        state.handle_event(EVENT.validate_python(event))
    if log.status is Status.COMPLETED:
        response = state._completed_response
        content = [part for item in response.output if item.type == "message" for part in item.content]
        said = log.output_now
        texts = [said.text] if said.parts is None else [p["text"] for p in said.parts if p["type"] == "text"]
        assert "".join(part.text for part in content) == "".join(texts) == response.output_text


def test_items_are_named_for_their_job():
    events = stored(a_log(parsed(parts_of.text("Hi"), parts_of.call(0, "call_a", "f"))))
    digits = JOB_ID.removeprefix("job_")
    assert [item["id"] for item in events[-1]["response"]["output"]] == [f"msg_{digits}00", f"fc_{digits}01"]
    assert events[0]["response"]["id"] == f"resp_{digits}"
    assert events[-1]["response"]["completed_at"] == AT.timestamp()
