"""The same clients on the real engine: one start of half a minute, and what only a real model can show."""

import json
from typing import Literal

import pytest
from openai import BadRequestError, OpenAI
from pydantic import BaseModel

from tests.acceptance.openai.recording import Recorder
from tests.acceptance.openai.story import Story
from tests.acceptance.stack import running

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

MODEL = "smollm2"
STORY = {
    "model": MODEL,
    "input": "Write a long story about a ship that sails around the world.",
    "max_output_tokens": 120,
    "temperature": 0,
}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


@pytest.fixture(scope="module")
def vllm_stack(services, api_key, tmp_path_factory):
    environment = {**services, "LONGHAUL_MODEL": MODEL, "LONGHAUL_SLOTS": "8"}
    with running(environment, api_key, tmp_path_factory.mktemp("openai-vllm")) as started:
        for name in ("background", "dispatcher", "gpu"):
            started.start(name)
        started.start_web()
        started.wait_for_workers(MODEL, 1, 240)
        yield started


@pytest.fixture
def real(vllm_stack):
    recorder = Recorder()
    with OpenAI(
        base_url=f"{vllm_stack.url}/v1", api_key=vllm_stack.key, http_client=recorder.client(), timeout=300
    ) as client:
        yield client
    recorder.check()


class Capital(BaseModel):
    country: Literal["France", "Italy"]
    city: Literal["Paris", "Rome"]


def test_parse_gives_what_the_schema_says(real):
    response = real.responses.parse(
        model=MODEL, input="What is the capital of France?", text_format=Capital, temperature=0
    )
    assert isinstance(response.output_parsed, Capital)
    chat = real.chat.completions.parse(
        model=MODEL,
        messages=[{"role": "user", "content": "What is the capital of Italy?"}],
        response_format=Capital,
        temperature=0,
    )
    assert isinstance(chat.choices[0].message.parsed, Capital)


def test_a_required_call_is_valid(real):
    body = {"model": MODEL, "tools": [WEATHER], "temperature": 0, "max_output_tokens": 200}
    response = real.responses.create(**body, input="What is the weather in Paris?", tool_choice="required")
    calls = [item for item in response.output if item.type == "function_call"]
    assert calls
    assert all(json.loads(call.arguments)["city"] in {"Paris", "Rome"} for call in calls)
    story = Story()
    with real.responses.create(
        **body,
        input="What is the weather in Rome?",
        stream=True,
        tool_choice={"type": "function", "name": "get_weather"},
    ) as stream:
        for event in stream:
            story.take(event.to_dict())
    assert story.response["output"][0]["name"] == "get_weather"
    assert json.loads(story.response["output"][0]["arguments"])["city"] in {"Paris", "Rome"}


def test_chat_gives_the_logprobs_of_its_tokens(real):
    completion = real.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        logprobs=True,
        top_logprobs=3,
        max_tokens=30,
        temperature=0,
    )
    (choice,) = completion.choices
    assert "Paris" in choice.message.content
    entries = choice.logprobs.content
    said = b"".join(bytes(entry.bytes) for entry in entries if not entry.token.startswith("<|"))
    assert said.decode() == choice.message.content
    for entry in entries:
        assert entry.logprob <= 0
        assert len(entry.top_logprobs) == 3
        assert entry.logprob == max(one.logprob for one in entry.top_logprobs)


def test_a_hostile_schema_fails_alone(real):
    """What the API lets through and no compiler ends with in time: others go on meanwhile and afterwards."""
    hostile = {"type": "string", "pattern": "^(.{0,10}){0,10}$"}
    response_format = {"type": "json_schema", "json_schema": {"name": "endless", "schema": hostile}}
    question = {"model": MODEL, "messages": [{"role": "user", "content": "Count to three."}], "max_tokens": 40}
    with real.chat.completions.create(**{**question, "max_tokens": 200}, stream=True) as other:
        chunks = iter(other)
        next(chunks)
        with pytest.raises(BadRequestError, match="JSON schema") as refusal:
            real.chat.completions.create(**question, response_format=response_format)
        assert refusal.value.code == "invalid_prompt"
        *_, last = chunks
        assert last.choices[0].finish_reason in {"stop", "length"}
    test_parse_gives_what_the_schema_says(real)


def test_a_killed_engine_and_a_cut_stream_change_no_letter(real, vllm_stack):
    """Last: the engine starts anew."""
    stack = vllm_stack
    undisturbed = real.responses.create(**STORY)
    story = Story()
    with real.responses.create(**STORY, stream=True, background=True) as stream:
        for event in stream:
            story.take(event.to_dict())
            if len(story.text) > 60:
                break
    stack.kill("gpu")
    stack.start("gpu")
    rest = real.responses.retrieve(story.created["id"], stream=True, starting_after=story.numbers[-1])
    with rest:
        for event in rest:
            story.take(event.to_dict())
    assert story.text == undisturbed.output_text
    assert story.response["usage"]["output_tokens"] == undisturbed.usage.output_tokens
    assert stack.job(story.created["id"].replace("resp_", "job_"))["attempt"] == 2
