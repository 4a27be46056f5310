"""OpenAI's agents and LangChain hold a conversation with tools; neither is told that it speaks to us."""

import asyncio
import os

import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI
from pydantic import BaseModel

from tests.acceptance.openai.conftest import MODEL

ANSWER = "It is 18 degrees in Paris."
QUESTION = f'[[call=get_weather {{"city": "Paris"}}]] What is the weather in Paris? [[say={ANSWER}]]'

set_tracing_disabled(disabled=True)


def test_no_client_reports_to_anybody():
    assert os.environ["LANGSMITH_TRACING"] == "false"
    assert os.environ["OPENAI_AGENTS_DISABLE_TRACING"] == "1"


@pytest.fixture
def asked():
    """The cities that a tool was asked for."""
    return []


@pytest.fixture
def converse(stack, recorder, asked):
    """`converse(kind, streamed=False, **settings)` runs an agent: its result, and the events of a stream."""

    @function_tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        asked.append(city)
        return f"It is 18 degrees in {city}."

    async def run(kind, streamed, settings):
        async with AsyncOpenAI(
            base_url=f"{stack.url}/v1", api_key=stack.key, http_client=recorder.async_client(), max_retries=0
        ) as client:
            agent = Agent(
                name="Weather",
                instructions="Answer with the weather.",
                model=kind(model=MODEL, openai_client=client),
                tools=[get_weather],
                model_settings=ModelSettings(max_tokens=100, **settings),
            )
            if not streamed:
                return await Runner.run(agent, QUESTION), []
            result = Runner.run_streamed(agent, QUESTION)
            return result, [event async for event in result.stream_events()]

    return lambda kind, *, streamed=False, **settings: asyncio.run(run(kind, streamed, settings))


@pytest.mark.parametrize("kind", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
def test_an_agent_calls_its_tool_and_answers(converse, asked, kind):
    result, _ = converse(kind)
    assert asked == ["Paris"]
    assert result.final_output == ANSWER
    kinds = [item.type for item in result.new_items]
    assert kinds == ["tool_call_item", "tool_call_output_item", "message_output_item"]
    assert result.context_wrapper.usage.requests == 2
    assert result.context_wrapper.usage.output_tokens > 0


@pytest.mark.parametrize("kind", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
def test_a_streamed_agent_tells_its_tool_and_its_text(converse, asked, kind):
    result, events = converse(kind, streamed=True)
    assert asked == ["Paris"]
    deltas = [
        event.data.delta
        for event in events
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    assert "".join(deltas) == result.final_output == ANSWER
    assert len(deltas) > 5


def test_a_forced_tool_and_parallel_calls_are_settings_of_an_agent(converse, asked):
    result, _ = converse(OpenAIResponsesModel, tool_choice="get_weather", parallel_tool_calls=False)
    assert asked == ["Paris"]
    assert result.final_output == ANSWER


@pytest.fixture
def chat(stack, recorder):
    """`chat(**options)` is LangChain's model."""
    with recorder.client() as http_client:
        yield lambda **options: ChatOpenAI(
            base_url=f"{stack.url}/v1",
            api_key=stack.key,
            model=MODEL,
            max_retries=0,
            http_client=http_client,
            **options,
        )


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"It is 18 degrees in {city}."


@pytest.mark.parametrize("options", [{}, {"use_responses_api": True}], ids=["chat", "responses"])
def test_langchain_binds_a_tool_and_goes_round(chat, options):
    model = chat(**options).bind_tools([get_weather])
    said = [HumanMessage(QUESTION)]
    answer = model.invoke(said)
    (call,) = answer.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"})
    said += [answer, ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])]
    final = model.invoke(said)
    assert final.text == ANSWER
    assert final.tool_calls == []
    assert final.usage_metadata["output_tokens"] > 0


@pytest.mark.parametrize("options", [{}, {"use_responses_api": True}], ids=["chat", "responses"])
def test_langchain_streams_a_tool_call_and_then_text(chat, options):
    model = chat(stream_usage=True, **options).bind_tools([get_weather])
    said = [HumanMessage(QUESTION)]
    answer = added(model.stream(said))
    (call,) = answer.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"})
    said += [answer, ToolMessage("18 degrees", tool_call_id=call["id"])]
    chunks = list(model.stream(said))
    assert len([chunk for chunk in chunks if chunk.text]) > 5
    assert added(chunks).text == ANSWER
    assert added(chunks).usage_metadata["output_tokens"] > 0


def added(chunks):
    total: AIMessageChunk | None = None
    for chunk in chunks:
        total = chunk if total is None else total + chunk
    assert total is not None
    return total


class City(BaseModel):
    """A city."""

    name: str


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain_gets_structured_output(chat, method):
    structured = chat().with_structured_output(City, method=method)
    assert isinstance(structured.invoke("Name a city."), City)


def test_langchain_asks_many_at_once(chat, recorder):
    async def ask():
        async with recorder.async_client() as http_client:
            model = chat(http_async_client=http_client).bind_tools([get_weather])
            return await asyncio.gather(*(model.ainvoke(QUESTION) for _ in range(4)))

    assert [answer.tool_calls[0]["args"] for answer in asyncio.run(ask())] == [{"city": "Paris"}] * 4
