"""Functions that the model calls, through `client.responses` and `client.chat.completions`."""

import json

import pytest
from openai import BadRequestError

from tests.acceptance.openai.conftest import MODEL
from tests.acceptance.openai.story import Story

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "name": "get_weather", "description": "The weather.", "parameters": PARAMETERS,
           "strict": True}  # fmt: skip
TIME = {"type": "function", "name": "get_time", "parameters": PARAMETERS, "strict": False}
CALL = '[[call=get_weather {"city": "Paris"}]] What is the weather in Paris?'
TWO = '[[call=get_weather {"city": "Paris"}]] [[call=get_time {"city": "Rome"}]] Both, please.'


def for_chat(tool):
    return {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}


def test_a_call_is_answered_and_the_conversation_goes_on(client):
    first = client.responses.create(model=MODEL, input=CALL, tools=[WEATHER, TIME])
    (call,) = first.output
    assert (call.type, call.name, call.status) == ("function_call", "get_weather", "completed")
    assert json.loads(call.arguments) == {"city": "Paris"}
    assert call.id.startswith("fc_")
    assert call.call_id.startswith("call_")
    assert (first.status, first.tool_choice, first.parallel_tool_calls) == ("completed", "auto", True)
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"}
    second = client.responses.create(
        model=MODEL, input=[output], previous_response_id=first.id, tools=[WEATHER, TIME], max_output_tokens=30
    )
    assert second.output_text
    items = client.responses.input_items.list(second.id, order="asc").data
    assert [item.type for item in items] == ["message", "function_call", "function_call_output"]
    whole = client.responses.create(
        model=MODEL,
        input=[{"role": "user", "content": CALL}, *first.output, output],
        tools=[WEATHER],
        max_output_tokens=30,
    )
    assert whole.output_text


def test_calls_in_parallel_are_items_one_after_the_other(client):
    response = client.responses.create(model=MODEL, input=TWO, tools=[WEATHER, TIME])
    assert [(item.name, json.loads(item.arguments)["city"]) for item in response.output] == [
        ("get_weather", "Paris"),
        ("get_time", "Rome"),
    ]
    assert len({item.call_id for item in response.output}) == 2


def test_a_streamed_call_is_told_whole(client):
    story = Story()
    with client.responses.create(model=MODEL, input=TWO, tools=[WEATHER, TIME], stream=True) as stream:
        for event in stream:
            story.take(event.to_dict())
    assert story.types.count("response.function_call_arguments.done") == 2
    assert story.types.count("response.output_item.added") == 2
    assert [item["name"] for item in story.response["output"]] == ["get_weather", "get_time"]


@pytest.mark.parametrize(
    ("choice", "called"),
    [("required", {"get_weather", "get_time"}), ({"type": "function", "name": "get_time"}, {"get_time"})],
)
def test_a_forced_choice_gives_a_call(client, choice, called):
    response = client.responses.create(model=MODEL, input="Hello.", tools=[WEATHER, TIME], tool_choice=choice)
    calls = [item for item in response.output if item.type == "function_call"]
    assert calls
    assert {call.name for call in calls} <= called
    assert all(set(json.loads(call.arguments)) == {"city"} for call in calls)
    assert response.to_dict()["tool_choice"] == choice


def test_with_the_choice_none_there_is_no_call(client):
    response = client.responses.create(
        model=MODEL, input="[[say=No calls.]]", tools=[WEATHER], tool_choice="none"
    )
    assert (response.output_text, response.tool_choice) == ("No calls.", "none")
    assert [tool.name for tool in response.tools] == ["get_weather"]


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search"},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "mcp", "server_label": "x", "server_url": "https://example.com"},
        {"type": "custom", "name": "x"},
        {"type": "file_search", "vector_store_ids": ["vs_1"]},
    ],
    ids=lambda tool: tool["type"],
)
def test_a_tool_that_we_do_not_have_is_refused_by_its_name(client, tool):
    with pytest.raises(BadRequestError) as refusal:
        client.responses.create(model=MODEL, input="Hello.", tools=[tool])
    assert refusal.value.param.startswith("tools")


def test_chat_calls_a_tool_and_reads_its_result(client):
    said = [{"role": "user", "content": CALL}]
    tools = [for_chat(WEATHER)]
    completion = client.chat.completions.create(model=MODEL, messages=said, tools=tools)
    (choice,) = completion.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    (call,) = choice.message.tool_calls
    assert (call.type, call.function.name) == ("function", "get_weather")
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    said += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "18 degrees"}]
    answer = client.chat.completions.create(model=MODEL, messages=said, tools=tools, max_tokens=20)
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in {"length", "stop"}


def test_chat_streams_calls_by_index(client):
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": TWO}],
        tools=[for_chat(WEATHER), for_chat(TIME)],
        stream=True,
    )
    calls, reasons = {}, []
    for chunk in stream:
        (choice,) = chunk.choices
        reasons.append(choice.finish_reason)
        for piece in choice.delta.tool_calls or []:
            if piece.id:
                assert piece.index not in calls
                calls[piece.index] = [piece.id, piece.function.name, ""]
            calls[piece.index][2] += piece.function.arguments or ""
    assert [(name, json.loads(written)) for _, name, written in calls.values()] == [
        ("get_weather", {"city": "Paris"}),
        ("get_time", {"city": "Rome"}),
    ]
    assert [reason for reason in reasons if reason] == ["tool_calls"]


def test_the_chat_stream_helper_understands_streamed_calls(client):
    with client.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": CALL}], tools=[for_chat(WEATHER)]
    ) as stream:
        final = stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls
    assert call.function.parsed_arguments == {"city": "Paris"}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_chat_can_force_a_call(client, choice):
    completion = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Hello."}],
        tools=[for_chat(WEATHER)],
        tool_choice=choice,
    )
    (call,) = completion.choices[0].message.tool_calls
    assert set(json.loads(call.function.arguments)) == {"city"}
