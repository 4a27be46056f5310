"""What a message may ask for: every parameter of Anthropic's becomes part of a job or is refused by name."""

from typing import get_type_hints

import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming

from app.anthropic import body as bodies
from app.anthropic.errors import MessageUnsupported
from app.jobs.errors import RequestInvalid
from app.jobs.requests import Message, PlainText
from app.jobs.tables import Surface
from app.jobs.tools import FunctionTool, NamedFunction
from app.surfaces import asking
from config.queues import Tier, Window

HI = [{"role": "user", "content": "hi"}]
LOOK = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}


def ask(**body):
    given = {"model": "m", "max_tokens": 10, "messages": HI, **body}
    return asking.ask(
        "/v1/messages", {name: value for name, value in given.items() if value is not ...}, Window.ONE_DAY
    )


def wanted(**body):
    return ask(**body).wanted


def user(*content):
    return {"role": "user", "content": list(content)}


def assistant(*content):
    return {"role": "assistant", "content": list(content)}


def text(said, **rest):
    return {"type": "text", "text": said, **rest}


def use(call_id="toolu_1", name="look", **given):
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def result(call_id="toolu_1", content="seen", **rest):
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **rest}


def test_a_message_is_a_batch_job_of_its_surface():
    asked = ask()
    assert asked.spoken.surface is Surface.MESSAGES
    assert asked.wanted.input == [Message(role="user", content="hi")]
    assert (asked.wanted.model, asked.wanted.max_output_tokens) == ("m", 10)
    assert (asked.wanted.tier, asked.wanted.completion_window) == (Tier.BATCH, Window.ONE_DAY)


def test_sampling_keeps_its_meaning():
    found = wanted(temperature=0.5, top_p=0.9, top_k=7, stop_sequences=["a", "b"], system="Be brief.")
    assert (found.temperature, found.top_p, found.top_k, found.stop) == (0.5, 0.9, 7, ["a", "b"])
    assert found.instructions == "Be brief."
    assert wanted().temperature == 1.0


def test_the_system_prompt_may_come_in_blocks():
    assert (
        wanted(system=[text("One."), text("Two.", cache_control={"type": "ephemeral"})]).instructions
        == "One.\nTwo."
    )


def test_who_the_user_is_becomes_metadata():
    assert wanted(metadata={"user_id": "u1"}).metadata == {"user_id": "u1"}
    assert wanted(metadata={"user_id": None}).metadata == {}


def test_a_conversation_with_tools_becomes_messages_with_calls_and_results():
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
    found = wanted(
        messages=[
            user(text("Look"), text("twice")),
            assistant(thought, text("I do."), use("toolu_1", at=1), use("toolu_2", at="é")),
            user(result("toolu_1"), result("toolu_2", [text("a"), text("b")], is_error=True), text("And now?")),
        ],
        tools=[LOOK],
    )
    said = [(message.role, message.text, message.tool_call_id) for message in found.input]
    assert said == [
        ("user", "Look\ntwice", None),
        ("assistant", "I do.", None),
        ("tool", "seen", "toolu_1"),
        ("tool", "a\nb", "toolu_2"),
        ("user", "And now?", None),
    ]
    assert [call.arguments for call in found.input[1].tool_calls] == ['{"at":1}', '{"at":"é"}']


def test_neighbours_of_one_role_are_one_turn():
    found = wanted(messages=[*HI, *HI, assistant(text("a")), assistant(use()), user(result())], tools=[LOOK])
    assert [message.role for message in found.input] == ["user", "assistant", "tool"]
    assert found.input[0].text == "hi\nhi"
    assert found.input[1].text == "a"
    assert [call.name for call in found.input[1].tool_calls] == ["look"]


def test_a_call_that_was_no_json_is_given_back_as_the_model_wrote_it():
    found = wanted(messages=[*HI, assistant(use(INVALID_JSON='{"a": ')), user(result())], tools=[LOOK])
    assert found.input[1].tool_calls[0].arguments == '{"a": '


@pytest.mark.parametrize(
    ("choice", "meaning", "is_parallel"),
    [
        ({"type": "auto"}, "auto", True),
        ({"type": "auto", "disable_parallel_tool_use": True}, "auto", False),
        ({"type": "any"}, "required", True),
        ({"type": "none"}, "none", True),
        (
            {"type": "tool", "name": "look", "disable_parallel_tool_use": True},
            NamedFunction(name="look"),
            False,
        ),
    ],
)
def test_a_choice_of_tools_keeps_its_meaning(choice, meaning, is_parallel):
    found = wanted(
        tools=[{**LOOK, "type": "custom", "strict": True, "defer_loading": False}], tool_choice=choice
    )
    assert (found.tool_choice, found.parallel_tool_calls) == (meaning, is_parallel)
    (tool,) = found.tools
    assert tool == FunctionTool(name="look", description="Looks.", parameters=LOOK["input_schema"], strict=True)


def test_a_schema_of_the_output_is_kept_to():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    found = wanted(output_config={"format": {"type": "json_schema", "schema": schema}})
    assert found.text.format.schema_ == schema
    assert wanted(output_config={"effort": "high"}).text.format == PlainText()


@pytest.mark.parametrize(
    "harmless",
    [
        {"stream": False},
        {"service_tier": "standard_only"},
        {"service_tier": "auto"},
        {"cache_control": {"type": "ephemeral"}},
        {"thinking": {"type": "adaptive"}},
        {"thinking": {"type": "disabled"}},
        {"container": None, "speed": "standard", "mcp_servers": []},
        {"tools": None, "system": None, "stop_sequences": None, "temperature": None},
    ],
)
def test_what_asks_for_nothing_changes_nothing(harmless):
    assert wanted(**harmless) == wanted()


IMAGE = {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"container": "c"}, "container"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"inference_geo": "eu"}, "inference_geo"),
        ({"speed": "fast"}, "speed"),
        ({"stream": True}, "stream"),
        ({"output_config": {"effort": "low"}}, "output_config.effort"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, "thinking.display"),
        ({"model": "qwen3-0.6b", "thinking": {"type": "disabled"}}, "thinking"),
        ({"messages": [user(text("a"), IMAGE)]}, "messages.0.content.1"),
        ({"messages": [user(result(content=[IMAGE]))]}, "messages.0.content.0.content.0"),
        ({"messages": [user(text("a", citations=[{}]))]}, "messages.0.content.0.citations"),
        ({"messages": [*HI, assistant(text("The answer is ("))]}, "messages.1"),
        ({"tools": [LOOK, {"type": "web_search_20250305", "name": "web_search"}]}, "tools.1.type"),
        ({"tools": [{**LOOK, "defer_loading": True}]}, "tools.0.defer_loading"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(body, param, monkeypatch):
    reasoning = type("Spec", (), {"reasoning_parser": "think"})
    monkeypatch.setattr(bodies, "catalogue", lambda: {"qwen3-0.6b": reasoning})
    with pytest.raises(Exception, match="is not supported here") as refusal:
        ask(**body)
    assert refusal.value.param == param
    assert refusal.value.code == MessageUnsupported.code


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"max_tokens": ...}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": ...}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages.0"),
        ({"messages": [{"role": "user", "content": [{"type": "sound"}]}]}, "messages.0.content.0"),
        ({"messages": [{"role": "user", "content": ""}]}, "messages"),
        ({"messages": [user(result("toolu_9"))]}, "messages.0.content.0.tool_use_id"),
        ({"temperature": 1.5}, "temperature"),
        ({"tools": [{**LOOK, "input_schema": {"type": "array"}}]}, "tools.0.input_schema"),
        ({"tool_choice": {"type": "tool", "name": "look"}}, "tool_choice"),
        ({"tools": [LOOK, LOOK]}, "tools"),
        ({"stop_sequences": ["a"] * 17}, "stop_sequences"),
        ({"tier": "interactive"}, "tier"),
        ({"prompt": "a"}, "prompt"),
    ],
)
def test_a_fault_is_named_in_anthropics_words(body, param):
    with pytest.raises(RequestInvalid) as fault:
        ask(**body)
    assert fault.value.param == param


def test_a_fault_of_the_job_is_told_in_anthropics_words():
    fault = RequestInvalid("max_output_tokens", "'max_output_tokens' is 9.")
    error = asking.reworded(endpoint="/v1/messages", error=fault)
    assert (error.param, str(error)) == ("max_tokens", "'max_tokens' is 9.")


def test_every_parameter_that_the_sdk_knows_is_read_or_refused_by_name():
    known = set(get_type_hints(MessageCreateParamsNonStreaming)) - {"workspace_id"}  # a header
    assert known <= set(bodies.CreateMessage.model_fields) | set(bodies.UNSUPPORTED)
