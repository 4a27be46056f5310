"""One job on a real recorder, a real database and the simulated engine."""

import orjson
import pytest

from app.db import transaction
from app.jobs import lifecycle
from app.jobs.log import read_output
from app.jobs.states import IncompleteReason, RequeueReason, Status
from app.streams.announce import ask_to_cancel
from tests.eventually import eventually
from tests.integration.workers.conftest import reload, replay


def output(job):
    with transaction() as session:
        return read_output(session, job)


def test_a_job_that_ends_by_itself_is_completed_with_its_output_and_usage(make_job, run):
    job = run(make_job(input="[[say=The capital of France is Paris.]]"))
    assert job.status is Status.COMPLETED
    assert output(job).text.strip() == "The capital of France is Paris."
    assert job.output_tokens == len(output(job).token_ids) > 0
    assert job.input_tokens > 0
    assert job.created_at <= job.started_at <= job.first_token_at <= job.finished_at


def test_a_job_that_reaches_its_limit_is_incomplete(make_job, run):
    job = run(make_job(max_output_tokens=7))
    assert (job.status, job.incomplete_reason) == (Status.INCOMPLETE, IncompleteReason.MAX_OUTPUT_TOKENS)
    assert job.output_tokens == 7


def test_a_log_holds_what_the_output_holds(make_job, run):
    job = run(make_job(max_output_tokens=300, input="[[emoji]]", temperature=0))
    follower = replay(job)
    assert follower.text == output(job).text
    assert follower.events == ["job.queued", "job.in_progress", "job.incomplete"]


def test_a_stop_string_ends_the_output_before_it_even_across_tokens(make_job, run):
    job = run(make_job(input="[[say=one two three four five]]", stop=["o three"]))
    assert job.status is Status.COMPLETED
    assert output(job).text.strip() == "one tw"


def test_what_looked_like_a_stop_string_is_shown_in_the_end(make_job, run):
    job = run(make_job(input="[[say=one two three]]", stop=["three and more"]))
    assert output(job).text.strip() == "one two three"
    assert replay(job).text.strip() == "one two three"


def test_a_second_ring_finds_nothing_to_do(make_job, run):
    job = run(make_job(max_output_tokens=5))
    assert run(job).attempt == 1


def test_a_prompt_beyond_the_context_fails_with_a_clear_error(make_job, run):
    job = run(make_job(input="word " * 5000))
    assert (job.status, job.error_code) == (Status.FAILED, "invalid_prompt")
    assert "context" in job.error_message


def test_a_prompt_that_the_engine_refuses_fails_with_its_reason(make_job, run):
    job = run(make_job(input="[[reject]]"))
    assert (job.status, job.error_code) == (Status.FAILED, "invalid_prompt")


def test_a_cancel_reaches_the_engine_and_keeps_the_partial(make_job, start, worker):
    job = make_job(max_output_tokens=3000)
    thread = start(job)
    eventually(lambda: output(job).text)
    with transaction() as session:
        lifecycle.request_cancel(session, job.id)
    ask_to_cancel(job.id)
    thread.join(2)
    ended = reload(job)
    assert ended.status is Status.CANCELLED
    assert 0 < ended.output_tokens < 3000
    assert replay(job).text == output(job).text


def test_a_cancel_whose_message_was_lost_comes_with_the_heartbeat(make_job, start):
    job = make_job(max_output_tokens=3000)
    thread = start(job)
    eventually(lambda: output(job).text)
    with transaction() as session:
        lifecycle.request_cancel(session, job.id)
    thread.join(3)
    assert reload(job).status is Status.CANCELLED


@pytest.mark.parametrize(
    ("cue", "timeouts", "reason"),
    [
        ("[[stall_after=0]]", {"first_token_seconds": 0.3}, IncompleteReason.FIRST_TOKEN_TIMEOUT),
        (
            "[[stall_after=5]]",
            {"first_token_seconds": 0.3, "total_seconds": 0.6},
            IncompleteReason.TOTAL_TIMEOUT,
        ),
    ],
)
def test_a_timeout_ends_as_incomplete_with_the_partial(make_job, run, cue, timeouts, reason):
    job = run(make_job(input=cue, timeouts=timeouts))
    assert (job.status, job.incomplete_reason) == (Status.INCOMPLETE, reason)
    assert job.output_tokens == (5 if reason == IncompleteReason.TOTAL_TIMEOUT else 0)


def test_a_draining_worker_hands_back_and_the_next_attempt_goes_on(make_job, start, run, worker, other_worker):
    whole = run(make_job(max_output_tokens=200, temperature=0, tier="batch"))
    job = make_job(max_output_tokens=200, temperature=0, tier="batch")
    thread = start(job)
    eventually(lambda: output(job).text)
    worker.begin_draining()
    thread.join(2)
    handed_back = reload(job)
    assert (handed_back.status, handed_back.lost_attempts) == (Status.QUEUED, 0)
    ended = run(job, on=other_worker)
    assert ended.attempt == 2
    assert output(ended).token_ids == output(whole).token_ids
    assert ended.input_tokens == whole.input_tokens
    follower = replay(ended)
    assert follower.text == output(whole).text
    assert follower.rewinds == []


def test_interactive_jobs_finish_within_the_grace_of_a_drain(make_job, start, worker):
    job = make_job(max_output_tokens=60)
    thread = start(job)
    eventually(lambda: reload(job).status is Status.IN_PROGRESS)
    worker.begin_draining()
    thread.join(3)
    assert reload(job).status is Status.INCOMPLETE


def test_structured_output_cannot_be_continued_and_begins_again(make_job, start, run, worker, other_worker):
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    job = make_job(
        input="[[step_ms=60]]",
        max_output_tokens=400,
        tier="batch",
        text={"format": {"type": "json_schema", "name": "x", "schema": schema}},
    )
    thread = start(job)
    eventually(lambda: output(job).text)
    worker.begin_draining()
    thread.join(2)
    ended = run(job, on=other_worker)
    assert ended.status is Status.COMPLETED
    assert isinstance(orjson.loads(output(ended).text), dict)
    follower = replay(ended)
    assert follower.rewinds == [0]
    assert follower.text == output(ended).text
    assert ended.output_tokens == len(output(ended).token_ids)


def test_a_stop_string_that_spans_two_attempts_is_found(make_job, run, do_hand_back):
    said = "[[say=alpha beta gamma delta epsilon]]"
    ids = output(run(make_job(input=said))).token_ids
    for cut in range(1, len(ids)):
        job = make_job(input=said, stop=["eta gam"])
        do_hand_back(job, list(ids[:cut]), stop=["eta gam"])
        ended = run(job)
        assert output(ended).text.strip() == "alpha b", cut
        assert ended.status is Status.COMPLETED


def test_a_character_that_spans_two_attempts_is_whole(make_job, run, do_hand_back, worker):
    whole = run(make_job(input="[[emoji]]", max_output_tokens=40, temperature=0))
    ids = output(whole).token_ids
    for cut in range(1, 12):
        job = make_job(input="[[emoji]]", max_output_tokens=40, temperature=0)
        do_hand_back(job, list(ids[:cut]))
        ended = run(job)
        assert output(ended).text == output(whole).text, cut
        assert output(ended).token_ids == ids


def test_limits_count_from_the_start_of_the_output(make_job, run, do_hand_back):
    whole = run(make_job(max_output_tokens=30, temperature=0))
    job = make_job(max_output_tokens=30, temperature=0)
    do_hand_back(job, list(output(whole).token_ids[:30]))
    ended = run(job)
    assert (ended.status, ended.output_tokens) == (Status.INCOMPLETE, 30)


def test_logprobs_are_kept_once_across_attempts(make_job, start, run, worker, other_worker):
    body = {"max_output_tokens": 150, "temperature": 0, "logprobs": 2, "tier": "batch"}
    whole = run(make_job(**body))
    job = make_job(**body)
    thread = start(job)
    eventually(lambda: output(job).text)
    worker.begin_draining()
    thread.join(2)
    ended = run(job, on=other_worker)
    assert len(output(ended).logprobs) == ended.output_tokens == 150
    assert output(ended).logprobs == output(whole).logprobs


def test_output_of_another_tokenizer_begins_again(make_job, run, do_hand_back):
    job = make_job(max_output_tokens=20)
    do_hand_back(job, [300, 301], text="not what these tokens say")
    ended = run(job)
    assert replay(ended).rewinds == [0]
    assert "not what" not in output(ended).text
    assert ended.output_tokens == 20


@pytest.fixture
def do_hand_back(worker):
    """Leave a job in the line as an earlier attempt with these tokens would have left it."""
    from app.jobs.lifecycle import Prefill, claim, hand_back
    from app.jobs.log import Segment, store_segments
    from workers.output import TextAssembler

    def leave(job, ids, stop=(), text=None):
        if text is None:
            assembler = TextAssembler(worker.engine.decoder([]), stop)
            text = "".join(assembler.feed(token) for token in ids)
        with transaction() as session:
            held = claim(session, job.id, "earlier", 60).job
            lease = held.lease_id
            if text:  # tokens that show nothing yet are never stored
                store_segments(session, [Segment(job.id, lease, 3, 3, 1, 0, text, [len(text)], ids)])
            hand_back(session, job.id, lease, Prefill(3, 0, 0.1), RequeueReason.WORKER_STOPPING)

    return leave
