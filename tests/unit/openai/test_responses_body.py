"""What a call to Responses says becomes a job, or is refused by its name."""

import pytest
from pydantic import ValidationError

from app.jobs.errors import RequestInvalid
from app.jobs.requests import Message
from app.openai.errors import Unsupported
from app.openai.responses.body import CountInputTokens, CreateResponse, echo, to_request
from config.queues import Tier, Window

TOOL = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}}


def body(**given):
    return CreateResponse.model_validate({"model": "m", "input": "Hi", **given})


def wanted(**given):
    return to_request(body(**given))


def test_the_least_that_is_said_is_an_interactive_job():
    job = wanted()
    assert (job.model, job.input, job.effective_tier, job.logprobs) == ("m", "Hi", Tier.INTERACTIVE, None)
    assert echo(body())["service_tier"] == "default"


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"conversation": "conv_1"}, "conversation"),
        ({"max_tool_calls": 1}, "max_tool_calls"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"moderation": {"model": "x"}}, "moderation"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"prompt_cache_retention": "24h"}, "prompt_cache_retention"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"reasoning": {"effort": "high"}}, "reasoning.effort"),
        ({"model": "simulated", "reasoning": {"effort": "none"}}, "reasoning.effort"),
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
        ),
        ({"include": ["file_search_call.results"]}, "include.0"),
        ({"tools": [TOOL, {"type": "web_search"}]}, "tools.1.type"),
        ({"tools": [{**TOOL, "defer_loading": True}]}, "tools.0.defer_loading"),
        ({"tool_choice": {"type": "file_search"}}, "tool_choice.type"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input.0.type"),
        ({"input": [{"id": "msg_1"}]}, "input.0"),
        ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, "input.0.type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0.content.0.type"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input.0.content.0.type"),
    ],
)
def test_what_openai_knows_and_we_do_not_is_refused_by_name(given, param):
    with pytest.raises(Unsupported) as refused:
        body(**given)
    assert refused.value.param == param
    assert f"'{param}'" in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {"text": {"verbosity": "medium"}},
        {"reasoning": {"effort": "medium", "summary": None}},
        {"model": "smollm2", "reasoning": {"effort": "none"}},
        {"stream": True, "stream_options": {"include_obfuscation": False}},
        {"include": ["reasoning.encrypted_content"]},
        {"tools": [{**TOOL, "strict": None, "defer_loading": False, "allowed_callers": None}]},
        dict.fromkeys(CreateResponse.model_fields.keys() - {"model", "input"}),
        dict.fromkeys(CreateResponse.UNSUPPORTED),
    ],
)
def test_null_and_what_openai_means_as_nothing_asked_for_are_taken(given):
    assert wanted(**given).input == "Hi"


def test_what_nobody_knows_is_refused():
    with pytest.raises(ValidationError, match="extra_forbidden"):
        body(foo=None)


def test_flex_and_completion_windows_are_the_batch_tier():
    assert wanted(service_tier="flex").effective_tier is Tier.BATCH
    assert echo(body(service_tier="flex"))["service_tier"] == "flex"
    given = {"background": True, "background_options": {"completion_window": "2h", "continuation_id": "run"}}
    job = wanted(**given)
    assert (job.effective_tier, job.effective_window, job.session_id) == (Tier.BATCH, Window.TWO_HOURS, "run")
    assert wanted(**given, session_id="mine").session_id == "mine"


@pytest.mark.parametrize(
    ("given", "logprobs"),
    [
        ({}, None),
        ({"include": ["message.output_text.logprobs"]}, 0),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 3}, 3),
        ({"top_logprobs": 2}, 2),
        ({"top_logprobs": 0}, None),
    ],
)
def test_logprobs_are_asked_for_by_include_or_by_their_number(given, logprobs):
    assert wanted(**given).logprobs == logprobs


def test_what_a_jobs_own_checks_find_is_told_in_the_words_of_the_body():
    with pytest.raises(RequestInvalid, match="min_tokens is larger than max_output_tokens") as found:
        wanted(max_output_tokens=3, min_tokens=5)
    assert found.value.param == "min_tokens"
    with pytest.raises(RequestInvalid) as found:
        wanted(tool_choice="required")
    assert found.value.param == "tool_choice"


def test_allowed_tools_are_all_that_the_model_is_told_of():
    other = {**TOOL, "name": "other"}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]}
    given = body(tools=[TOOL, other], tool_choice=allowed)
    job = to_request(given)
    assert ([tool.name for tool in job.tools], job.tool_choice) == (["add"], "required")
    assert echo(given)["tool_choice"] == allowed
    assert [tool["name"] for tool in echo(given)["tools"]] == ["add", "other"]
    with pytest.raises(RequestInvalid, match="allows 'gone'"):
        wanted(tools=[TOOL], tool_choice={**allowed, "tools": [{"type": "function", "name": "gone"}]})


def test_a_result_must_answer_a_call_of_its_conversation():
    result = {"type": "function_call_output", "call_id": "c1", "output": "3"}
    with pytest.raises(RequestInvalid) as found:
        wanted(input=[result])
    assert found.value.param == "input.0.call_id"
    call = {"id": "c1", "name": "add", "arguments": "{}"}
    earlier = [Message(role="user", content="Add"), Message(role="assistant", tool_calls=[call])]
    job = to_request(body(input=[result]), earlier)
    assert [message.role for message in job.input] == ["user", "assistant", "tool"]


def test_an_input_without_anything_to_read_is_refused():
    for given in ("", [{"type": "reasoning", "id": "rs_1", "summary": []}]):
        with pytest.raises(RequestInvalid) as found:
            wanted(input=given)
        assert found.value.param == "input"


def test_a_count_reads_what_a_response_would():
    given = {"model": "m", "input": "Hi", "instructions": "Be brief.", "tools": [TOOL]}
    assert to_request(CountInputTokens(**given)).prompt == wanted(instructions="Be brief.", tools=[TOOL]).prompt
    with pytest.raises(ValidationError):
        CountInputTokens(**given, temperature=1)


def test_the_same_body_is_echoed_the_same():
    given = {"input": [{"role": "user", "content": "Hi"}], "user": "u", "prompt_cache_key": "k", "store": False}
    assert echo(body(**given)) == echo(body(**given))
