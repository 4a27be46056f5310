"""Output taken apart on its way: stored, shown live, and the same whatever happened to its worker."""

import orjson
import pytest

from app.db import transaction
from app.jobs import lifecycle, log, parts
from app.jobs.log import Segment
from app.jobs.parts import Part
from app.jobs.requests import JobRequest
from app.jobs.states import RequeueReason, Status
from app.redis import client
from app.streams import channel, frames, tail
from app.streams.announce import ask_to_cancel
from tests.engine.folding import fold
from tests.eventually import eventually
from tests.integration.workers.conftest import reload, replay
from tests.integration.workers.test_executor import output
from workers.janitor import rescue_lost_jobs
from workers.output import TextAssembler
from workers.reading import Reading, is_same

TOOL = {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALLING = (
    "[[think=Paris, then.]][[say=I look.]]"
    '[[call=get_weather {"city": "Paris", "why": ["because", "the sea 🦊 is deep"]}]]'
    '[[call=get_weather {"city": "Oslo"}]]'
)


@pytest.fixture
def calling(make_job):
    """`calling(**body)` is a job that thinks, speaks and calls twice."""
    return lambda **body: make_job(**{"input": CALLING, "tools": [TOOL], "max_output_tokens": 400} | body)


@pytest.fixture(autouse=True)
def parsers(worker):
    """The test model's engine with names for its markup."""
    name_markup(worker)


def name_markup(worker):
    changes = {"tool_parser": "hermes", "reasoning_parser": "think"}
    worker.engine.spec = worker.engine.spec.model_copy(update=changes)


def frames_of(job) -> list[dict]:
    return [
        orjson.loads(frame.body) for batch in channel.follow(job.id, 0, tick_seconds=0.5) for frame in batch
    ]


def parts_of(shown) -> list[Part]:
    return [part for frame in shown for part in frame.get("parts") or ()]


def test_a_job_with_tools_stores_its_parts_and_shows_them(calling, run):
    job = run(calling())

    found = output(job)
    whole = fold(found.parts)
    assert (job.status, whole.reasoning, whole.content) == (Status.COMPLETED, "Paris, then.", "I look.")
    assert [orjson.loads(call["arguments"])["city"] for call in whole.calls] == ["Paris", "Oslo"]
    assert found.text.startswith("<think>Paris, then.</think>I look.<tool_call>")
    assert is_same(parts_of(frames_of(job)), found.parts)
    assert parts.reasoning_tokens(found.parts) == 12


def test_a_job_that_is_plain_text_has_no_parts(make_job, run, worker):
    worker.engine.spec = worker.engine.spec.model_copy(update={"reasoning_parser": ""})
    job = run(make_job(max_output_tokens=20))

    assert output(job).parts is None
    assert not any("parts" in frame for frame in frames_of(job))


def test_live_frames_carry_parts_in_pieces(calling, start):
    thread = start(job := calling(input=f"[[step_ms=20]]{CALLING}"))
    live = frames_of(job)
    thread.join(20)

    assert is_same(parts_of(live), output(job).parts)
    assert sum("parts" in frame for frame in live) > 5


def test_a_model_without_a_parser_calls_no_tools(calling, run, worker):
    worker.engine.spec = worker.engine.spec.model_copy(update={"tool_parser": ""})
    job = run(calling())

    assert (job.status, job.error_code) == (Status.FAILED, "invalid_prompt")
    assert "tools" in job.error_message


def test_a_call_goes_on_where_a_draining_worker_left_it(calling, start, run, worker, other_worker):
    name_markup(other_worker)
    whole = run(calling(tier="batch"))
    job = calling(tier="batch", input=f"[[step_ms=20]]{CALLING}")
    thread = start(job)
    eventually(lambda: any(part["type"] == "tool_call" for part in output(job).parts or ()))
    worker.begin_draining()
    thread.join(2)
    partial = fold(output(job).parts)
    ended = run(job, on=other_worker)

    assert 1 <= len(partial.calls) <= 2
    assert ended.attempt == 2
    assert replay(ended).rewinds == []
    assert names_and_arguments(output(ended)) == names_and_arguments(output(whole))
    assert partial.calls[0]["id"] == fold(output(ended).parts).calls[0]["id"]


def names_and_arguments(found):
    return [(call["name"], call["arguments"]) for call in fold(found.parts).calls]


def test_wherever_an_attempt_ended_the_next_one_completes_its_parts(calling, run, leave):
    whole = output(run(calling()))
    for cut in range(1, len(whole.token_ids), 9):
        job = calling()
        leave(job, whole.token_ids[:cut])
        ended = run(job)
        folded = fold(output(ended).parts)
        assert names_and_arguments(output(ended)) == names_and_arguments(whole), cut
        assert (folded.content, folded.reasoning) == ("I look.", "Paris, then.")
        assert replay(ended).rewinds == []


def test_parts_that_only_the_live_tail_has_survive_a_lost_worker(calling, run, leave):
    whole = output(run(calling()))
    for cut in (20, 60, 130):
        job = calling()
        leave(job, whole.token_ids[:cut], is_stored=False)
        ended = run(job)
        assert names_and_arguments(output(ended)) == names_and_arguments(whole), cut
        assert replay(ended).rewinds == []


def test_parts_that_another_parser_found_begin_again(calling, run, leave):
    whole = output(run(calling()))
    job = calling()
    leave(job, whole.token_ids[:60], found=[parts.text("something else")])
    ended = run(job)

    assert replay(ended).rewinds == [0]
    assert names_and_arguments(output(ended)) == names_and_arguments(whole)


def test_a_forced_call_cannot_be_continued_and_begins_again(calling, run, leave):
    forced = {"input": "Go.", "tool_choice": "required", "parallel_tool_calls": False}
    whole = output(run(calling(**forced)))
    job = calling(**forced)
    leave(job, whole.token_ids[:30])
    ended = run(job)

    assert replay(ended).rewinds == [0]
    assert names_and_arguments(output(ended)) == names_and_arguments(whole) == [("get_weather", '{"city": ""}')]


def test_a_cancelled_call_keeps_its_beginning(calling, start):
    thread = start(job := calling(input=f"[[step_ms=20]]{CALLING}"))
    eventually(lambda: any("arguments" in part for part in output(job).parts or ()))
    with transaction() as session:
        lifecycle.request_cancel(session, job.id)
    ask_to_cancel(job.id)
    thread.join(5)

    assert reload(job).status is Status.CANCELLED
    (call, *_) = fold(output(job).parts).calls
    assert '{"city": "Paris", "why": ["because", "the sea 🦊 is deep"]}'.startswith(call["arguments"][:10])


def test_logprobs_of_what_is_said_are_with_it_and_those_of_markup_are_not(calling, run):
    job = run(calling(logprobs=1))

    found = output(job)
    said = [entry for part in found.parts for entry in part.get("logprobs", ())]
    assert "".join(entry["token"] for entry in said) == "I look."
    assert all("logprobs" not in part for part in found.parts if part["type"] != "text")
    assert len(found.logprobs) == job.output_tokens
    others = [top for entry in said for top in entry["top_logprobs"]]
    for entry in [*found.logprobs, *others]:
        assert bytes(entry["bytes"]).decode("utf-8", "replace") == entry["token"].replace("\0", "")


def test_a_stop_string_inside_a_thought_ends_the_thought(calling, run):
    job = run(calling(stop=["then"]))

    folded = fold(output(job).parts)
    assert (folded.reasoning, folded.content, folded.calls) == ("Paris, ", "", [])


@pytest.fixture
def leave(worker):
    """Leave a job as an earlier attempt with these tokens would: handed back with them stored, or lost with
    them in the live tail alone.
    """

    def leave(job, ids, *, is_stored=True, found=None):
        reader = worker.engine.reader(JobRequest.model_validate(job.request).tool_use, [], job.id)
        assembler, reading = TextAssembler(worker.engine.decoder([]), ()), Reading(reader)
        shown = []
        for token in ids:
            shown.append(text := assembler.feed(token))
            reading.feed(token, text, 0)
        text, pieces = "".join(shown), reading.take() if found is None else found
        with transaction() as session:
            held = lifecycle.claim(session, job.id, "earlier", 60 if is_stored else 0).job
        segment = Segment(job.id, held.lease_id, 3, 3, 1, 0, text, [len(text)], list(ids), parts=[pieces])
        if not is_stored:
            publish(segment)
            rescue_lost_jobs()
            return
        with transaction() as session:
            log.store_segments(session, [segment])
            lifecycle.hand_back(
                session, job.id, held.lease_id, lifecycle.Prefill(3, 0, 0.1), RequeueReason.WORKER_STOPPING
            )

    return leave


def publish(segment):
    frame = frames.delta(3, 3, 0, segment.text, None, segment.parts[0])
    tail.publish(client(), [tail.TailEntry(segment.job_id, frame, segment.token_ids, is_first=True)])
