"""What Anthropic's SDK is told of a job."""

import pytest
from anthropic.types import Message
from hypothesis import given
from hypothesis import strategies as st

from app.anthropic import ids, message
from app.anthropic.errors import type_of
from app.jobs import parts as part
from app.jobs.log import Output
from app.jobs.states import IncompleteReason, Status
from config.queues import Tier
from tests.unit.openai.chat_logs import job


def describe(*parts, **columns):
    said = message.describe(job(1, **columns), Output("raw", parts=parts))
    Message.model_validate(said, strict=True)
    return said


def test_a_plain_answer_is_one_block_of_text():
    ended = job(1, tier=Tier.BATCH, cached_tokens=5)
    said = message.describe(ended, Output("Hello."))
    assert Message.model_validate(said, strict=True).content[0].text == "Hello."
    assert said["id"] == f"msg_{1:032x}"
    assert said["stop_reason"] == "end_turn"
    assert said["usage"] == {
        "input_tokens": 2,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 5,
        "output_tokens": 3,
        "output_tokens_details": {"thinking_tokens": 0},
        "service_tier": "batch",
    }
    assert message.describe(ended, Output())["content"] == []


def test_thoughts_words_and_calls_come_in_their_order():
    said = describe(
        part.reasoning("I ", 1),
        part.reasoning("think", 1),
        part.text("\n\n"),
        part.call(0, "call_1", "look"),
        part.arguments(0, '{"at"'),
        part.call(1, "call_2", "go"),
        part.arguments(0, ": 1}"),
    )
    assert said["content"] == [
        {"type": "thinking", "thinking": "I think", "signature": ""},
        {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": 1}},
        {"type": "tool_use", "id": "call_2", "name": "go", "input": {}},
    ]
    assert said["stop_reason"] == "tool_use"
    assert said["usage"]["output_tokens_details"] == {"thinking_tokens": 2}


@pytest.mark.parametrize("written", ['{"at": ', "[1]", "7", "see"])
def test_a_call_that_is_no_object_keeps_the_models_words(written):
    said = describe(part.call(0, "call_1", "look"), part.arguments(0, written))
    assert said["content"][0]["input"] == {"INVALID_JSON": written}


@pytest.mark.parametrize(
    ("status", "reason", "said"),
    [
        (Status.INCOMPLETE, IncompleteReason.MAX_OUTPUT_TOKENS, "max_tokens"),
        (Status.INCOMPLETE, IncompleteReason.COMPLETION_WINDOW, None),
        (Status.CANCELLED, None, None),
    ],
)
def test_an_answer_that_was_cut_off_says_why_where_anthropic_has_a_word(status, reason, said):
    assert describe(part.text("a"), status=status, incomplete_reason=reason)["stop_reason"] == said


@given(
    st.lists(
        st.sampled_from(["text", "reasoning"]).flatmap(lambda k: st.tuples(st.just(k), st.text(max_size=3)))
    )
)
def test_no_word_is_lost_or_changed_but_lone_space(pieces):
    parts = [part.text(said) if kind == "text" else part.reasoning(said, 1) for kind, said in pieces]
    content = describe(*parts)["content"]
    for kind, field in (("text", "text"), ("reasoning", "thinking")):
        told = "".join(block.get(field, "") for block in content)
        assert "".join(told.split()) == "".join("".join(said for k, said in pieces if k == kind).split())


def test_a_failed_job_has_anthropics_error():
    assert message.failure(job(error_code="invalid_prompt", error_message="No.")) == (
        "invalid_request_error",
        "No.",
    )
    assert message.failure(job(error_code="worker_lost", error_message="Gone.")) == ("api_error", "Gone.")


def test_ids_lead_back_to_what_they_name():
    batch_id = f"batch_{7:032x}"
    assert ids.batch_id_of(ids.message_batch_id(batch_id)) == batch_id
    assert ids.batch_id_of("msgbatch_") == "batch_"
    assert ids.message_id(job(3, surface="messages").id) == f"msg_{3:032x}"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (409, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
    ],
)
def test_every_status_has_a_word_of_anthropics(status, kind):
    assert type_of(status) == kind
