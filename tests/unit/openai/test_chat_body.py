"""What a chat may ask for: every parameter of OpenAI's becomes part of a job or is refused by name."""

import json

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk, ParsedChatCompletionMessage

from app.api.bodies import parse
from app.api.errors import BodyInvalid
from app.jobs import parts as part
from app.jobs import requests, schemas
from app.jobs import tools as jobs_tools
from app.jobs.errors import RequestInvalid
from app.jobs.tools import FunctionTool, NamedFunction
from app.openai.chat import body as chat
from app.openai.chat import completion
from app.openai.chat.body import CreateChat
from app.openai.chat.chunks import Projector
from app.openai.errors import Unsupported
from app.openai.sampling import MAX_CHOICES
from config.queues import Tier, Window
from tests.unit.openai.chat_logs import Log, Piece, job

HI = [{"role": "user", "content": "hi"}]


def read(**body):
    return parse(CreateChat, {"model": "m", "messages": HI, **body})


def ask(**body):
    """The first of its jobs."""
    return chat.to_requests(read(**body))[0]


def tool(name="look", **function):
    return {"type": "function", "function": {"name": name, **function}}


def named(name="look"):
    return {"type": "function", "function": {"name": name}}


def allowed(*names, mode="auto"):
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [named(name) for name in names]}}


def called(call_id="call_1", name="look", arguments="{}", **rest):
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call], **rest}


def schema_format(schema, **rest):
    return {"type": "json_schema", "json_schema": {"name": "out", "schema": schema, **rest}}


def nested(levels):
    value = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


PART = {"type": "text", "text": "hi"}
PICTURE = {"type": "image_url", "image_url": {"url": "data:,"}}

UNSUPPORTED = [
    ("audio", {"voice": "alloy", "format": "wav"}, "audio"),
    ("function_call", "auto", "function_call"),
    ("function_call", {"name": "look"}, "function_call"),
    ("functions", [{"name": "look"}], "functions"),
    ("modalities", ["text", "audio"], "modalities"),
    ("moderation", {"model": "omni"}, "moderation"),
    ("prediction", {"type": "content", "content": "hi"}, "prediction"),
    ("prompt_cache_options", {"mode": "explicit"}, "prompt_cache_options"),
    ("prompt_cache_retention", "24h", "prompt_cache_retention"),
    ("reasoning_effort", "low", "reasoning_effort"),
    ("reasoning_effort", "high", "reasoning_effort"),
    ("verbosity", "high", "verbosity"),
    ("web_search_options", {}, "web_search_options"),
    ("service_tier", "priority", "service_tier"),
    ("stream_options", {"include_obfuscation": True}, "stream_options.include_obfuscation"),
    ("tools", [{"type": "custom", "custom": {"name": "x"}}], "tools.0.type"),
    ("tools", [tool(), {"type": "custom", "custom": {"name": "x"}}], "tools.1.type"),
    ("tool_choice", {"type": "custom", "custom": {"name": "x"}}, "tool_choice.type"),
    ("messages", [*HI, {"role": "function", "name": "look", "content": "x"}], "messages.1.role"),
    ("messages", [{"role": "user", "content": [PART, PICTURE]}], "messages.0.content.1"),
    (
        "messages",
        [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}],
        "messages.0.content.0",
    ),
    ("messages", [{"role": "user", "content": [{"type": "file", "file": {}}]}], "messages.0.content.0"),
    ("messages", [{"role": "user", "content": "x", "name": "bob"}], "messages.0.name"),
    ("messages", [{"role": "system", "content": "x", "name": "bob"}], "messages.0.name"),
    ("messages", [{"role": "assistant", "content": "x", "name": "bob"}], "messages.0.name"),
    ("messages", [{"role": "assistant", "content": "x", "audio": {"id": "a"}}], "messages.0.audio"),
    (
        "messages",
        [{"role": "assistant", "function_call": {"name": "x", "arguments": ""}}],
        "messages.0.function_call",
    ),
    ("messages", [{"role": "assistant", "content": "x", "annotations": [{}]}], "messages.0.annotations"),
    (
        "messages",
        [{"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {}}]}],
        "messages.0.tool_calls.0",
    ),
]


@pytest.mark.parametrize(("name", "value", "param"), UNSUPPORTED)
def test_what_openai_knows_and_we_do_not_serve_is_refused_by_name(name, value, param):
    with pytest.raises(Unsupported) as error:
        ask(**{name: value})
    assert error.value.param == param


HARMLESS = [
    ("function_call", "none"),
    ("modalities", ["text"]),
    ("prompt_cache_options", {"mode": "implicit"}),
    ("prompt_cache_retention", "in_memory"),
    ("reasoning_effort", "none"),
    ("reasoning_effort", "medium"),
    ("verbosity", "medium"),
    ("service_tier", "auto"),
    ("user", "someone"),
    ("safety_identifier", "someone"),
    ("prompt_cache_key", "key"),
    ("store", True),
    ("store", False),
    ("n", 1),
    ("tools", []),
    ("response_format", {"type": "text"}),
    ("parallel_tool_calls", True),
    ("temperature", 1),
    ("logit_bias", {}),
    ("logprobs", False),
    ("messages", [{"role": "user", "content": "hi", "name": None}]),
]


@pytest.mark.parametrize(("name", "value"), HARMLESS)
def test_what_changes_nothing_is_accepted(name, value):
    assert ask(**{name: value}) == ask()


@pytest.mark.parametrize(
    "name", sorted({*CreateChat.model_fields, *CreateChat.UNSUPPORTED} - {"model", "messages"})
)
def test_null_is_every_parameters_default(name):
    assert ask(**{name: None}) == ask()


def test_a_model_that_reasons_cannot_be_told_not_to():
    ask(model="simulated")
    with pytest.raises(Unsupported) as error:
        ask(model="simulated", reasoning_effort="none")
    assert error.value.param == "reasoning_effort"


def test_no_parameter_is_both_served_and_refused():
    assert not CreateChat.UNSUPPORTED.keys() & CreateChat.model_fields.keys()


def test_every_parameter_of_openai_is_known():
    from openai.types.chat import completion_create_params

    theirs = completion_create_params.CompletionCreateParamsBase.__annotations__
    assert not set(theirs) - {*CreateChat.UNSUPPORTED, *CreateChat.model_fields}


MANY = [{"role": "user", "content": "x"}] * requests.MAX_MESSAGES
TOOLS = [tool(f"f{n}") for n in range(jobs_tools.MAX_TOOLS)]
CALLS = called()["tool_calls"] * jobs_tools.MAX_TOOL_CALLS
DEEP, WIDE = schemas.MAX_SCHEMA_DEPTH, schemas.MAX_SCHEMA_BYTES - len('{"a": ""}')


def taking(schema):
    """The parameters of a function that also say `schema`, where it means nothing."""
    return {"type": "object", "a": schema}


def wide(beyond):
    """As many bytes as parameters may have, and `beyond`."""
    size = schemas.MAX_SCHEMA_BYTES - len(json.dumps(taking("")))
    return taking("x" * (size + beyond))


EDGES = [
    ("model", "m" * 128, "m" * 129),
    ("model", "m", ""),
    ("messages", MANY, [*MANY, *HI]),
    ("messages", HI, []),
    ("messages", [{"role": "developer", "content": "x"}], [{"role": "robot", "content": "x"}]),
    ("messages", [{"role": "user", "content": [PART]}], [{"role": "user", "content": []}]),
    ("messages", [{"role": "user", "content": "x"}], [{"role": "user", "content": None}]),
    ("messages", [{"role": "user", "content": "x"}], [{"role": "user"}]),
    ("messages", [{"role": "user", "content": [PART]}], [{"role": "user", "content": [{"type": "video"}]}]),
    ("messages", [{"role": "assistant", "content": ""}, *HI], [{"role": "assistant", "content": None}, *HI]),
    ("messages", [called(), *HI], [called(extra=1), *HI]),
    ("messages", [called(call_id="c" * 128)], [called(call_id="c" * 129)]),
    ("messages", [called(name="f" * 64)], [called(name="f" * 65)]),
    ("messages", [called(name="f")], [called(name="no spaces")]),
    ("messages", [called(tool_calls=CALLS)], [called(tool_calls=[*CALLS, CALLS[0]])]),
    (
        "messages",
        [called(arguments="x" * jobs_tools.MAX_ARGUMENTS_CHARS)],
        [called(arguments="x" * (jobs_tools.MAX_ARGUMENTS_CHARS + 1))],
    ),
    ("n", MAX_CHOICES, MAX_CHOICES + 1),
    ("n", 1, 0),
    ("temperature", 2, 2.01),
    ("temperature", 0, -0.01),
    ("top_p", 1, 1.01),
    ("top_p", 0.01, 0),
    ("presence_penalty", -2, -2.1),
    ("presence_penalty", 2, 2.1),
    ("frequency_penalty", -2, -2.1),
    ("frequency_penalty", 2, 2.1),
    ("repetition_penalty", 10, 10.1),
    ("repetition_penalty", 0.1, 0),
    ("min_p", 1, 1.1),
    ("min_p", 0, -0.1),
    ("top_k", 0, -1),
    ("top_k", 1_000_000, 1_000_001),
    ("min_tokens", 1_000_000, 1_000_001),
    ("min_tokens", 0, -1),
    ("max_tokens", 1, 0),
    ("max_tokens", 1_000_000, 1_000_001),
    ("max_completion_tokens", 1, 0),
    ("max_completion_tokens", 1_000_000, 1_000_001),
    ("seed", 2**63 - 1, 2**63),
    ("seed", -(2**63), -(2**63) - 1),
    ("stop", ["x"] * 16, ["x"] * 17),
    ("stop", "x" * 256, "x" * 257),
    ("stop", "x", ""),
    ("logit_bias", {str(n): 1 for n in range(300)}, {str(n): 1 for n in range(301)}),
    ("logit_bias", {"7": 100}, {"7": 100.1}),
    ("logit_bias", {"7": -100}, {"7": -100.1}),
    ("logit_bias", {"7": 1}, {"seven": 1}),
    ("tools", TOOLS, [*TOOLS, tool("another")]),
    ("tools", [tool("f" * 64)], [tool("f" * 65)]),
    ("tools", [tool("a.b-c_d")], [tool("a b")]),
    ("tools", [tool(description="d" * 8_192)], [tool(description="d" * 8_193)]),
    ("tools", [tool(parameters=taking(nested(DEEP - 1)))], [tool(parameters=taking(nested(DEEP)))]),
    ("tools", [tool(parameters=wide(0))], [tool(parameters=wide(1))]),
    ("tools", [tool(parameters={})], [tool(parameters={"type": "string"})]),
    ("tools", [tool(strict=True)], [tool(strict="yes please")]),
    ("tools", [tool()], [{"type": "web_search"}]),
    ("tool_choice", "auto", "maybe"),
    ("response_format", {"type": "json_object"}, {"type": "xml"}),
    ("response_format", schema_format(nested(DEEP)), schema_format(nested(DEEP + 1))),
    ("response_format", schema_format({"a": "x" * WIDE}), schema_format({"a": "x" * (WIDE + 1)})),
    ("response_format", schema_format({}, name="o" * 64), schema_format({}, name="o" * 65)),
    ("response_format", schema_format({}, description="d" * 1024), schema_format({}, description="d" * 1025)),
    ("response_format", schema_format({}), {"type": "json_schema", "json_schema": {"name": "out"}}),
    ("user", "u" * 256, "u" * 257),
    ("safety_identifier", "s" * 64, "s" * 65),
    ("prompt_cache_key", "k" * 256, "k" * 257),
    ("metadata", {"k": "v" * 512}, {"k": "v" * 513}),
]


@pytest.mark.parametrize(("field", "good", "bad"), EDGES)
def test_a_limit_holds_at_its_edge(field, good, bad):
    ask(**{field: good})
    with pytest.raises(BodyInvalid) as error:
        ask(**{field: bad})
    assert error.value.param.split(".")[0] == field


def test_top_logprobs_go_with_logprobs_up_to_twenty():
    assert ask(logprobs=True).logprobs == 0
    assert ask(logprobs=True, top_logprobs=20).logprobs == 20
    for given in ({"top_logprobs": 1}, {"logprobs": True, "top_logprobs": 21}):
        with pytest.raises(BodyInvalid) as error:
            ask(**given)
        assert error.value.param == "top_logprobs"


def test_all_messages_together_have_a_limit_of_their_own():
    half = {"role": "user", "content": "x" * (requests.MAX_INPUT_CHARS // 2)}
    ask(messages=[half, half])
    with pytest.raises(RequestInvalid) as error:
        ask(messages=[half, half, *HI])
    assert error.value.param == "messages"


TOGETHER = [
    ({"max_completion_tokens": 3, "min_tokens": 4}, "min_tokens"),
    ({"response_format": {"type": "json_object"}, "stop": "x"}, "stop"),
    ({"tools": [tool(), tool()]}, "tools"),
    ({"tools": [tool()], "tool_choice": named("find")}, "tool_choice"),
    ({"tool_choice": named()}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": [tool()], "tool_choice": allowed("find")}, "tool_choice"),
    ({"tools": [tool()], "tool_choice": "required", "stop": "x"}, "tool_choice"),
    ({"messages": [{"role": "tool", "tool_call_id": "call_1", "content": "x"}]}, "messages.0.tool_call_id"),
    (
        {"messages": [called(), {"role": "tool", "tool_call_id": "other", "content": "x"}]},
        "messages.1.tool_call_id",
    ),
    (
        {"messages": [called(), {"role": "tool", "tool_call_id": "call_1", "name": "find", "content": "x"}]},
        "messages.1.name",
    ),
    ({"tier": "interactive", "completion_window": "1h"}, "completion_window"),
]


@pytest.mark.parametrize(("body", "param"), TOGETHER)
def test_what_does_not_go_together_is_refused_in_the_chats_own_words(body, param):
    with pytest.raises(RequestInvalid) as error:
        ask(**body)
    assert error.value.param == param
    assert "output_tokens" not in str(error.value)
    assert "text.format" not in str(error.value)


def test_stream_options_are_for_streams():
    with pytest.raises(BodyInvalid) as error:
        read(stream_options={"include_usage": True})
    assert error.value.param == "stream_options"
    assert read(stream=True, stream_options={"include_usage": True}).wants_usage
    assert not read(
        stream=True, stream_options={"include_usage": None, "include_obfuscation": False}
    ).wants_usage
    assert not read(stream=True).wants_usage
    with pytest.raises(BodyInvalid, match=r"Unknown parameter: 'stream_options\.continuous'"):
        read(stream=True, stream_options={"continuous": True})


def test_the_old_name_of_the_token_limit_may_not_contradict_the_new_one():
    assert ask(max_tokens=5).max_output_tokens == 5
    assert ask(max_completion_tokens=5).max_output_tokens == 5
    assert ask(max_tokens=5, max_completion_tokens=5).max_output_tokens == 5
    assert ask().max_output_tokens is None
    with pytest.raises(BodyInvalid) as error:
        ask(max_tokens=5, max_completion_tokens=6)
    assert error.value.param == "max_tokens"


def test_sampling_reaches_the_job_as_it_was_asked_for():
    asked = {
        "temperature": 0.5, "top_p": 0.9, "presence_penalty": 1.0, "frequency_penalty": -1.0, "seed": 3,
        "stop": ["a", "b"], "top_k": 4, "min_p": 0.1, "repetition_penalty": 1.1, "ignore_eos": True,
        "metadata": {"k": "v"}, "model": "other",
    }  # fmt: skip
    made = ask(**asked, logit_bias={"5": 1}, min_tokens=2, session_id="s", completion_window="2h")
    assert {name: getattr(made, name) for name in asked} == asked
    assert (made.logit_bias, made.min_output_tokens, made.session_id) == ({5: 1.0}, 2, "s")
    assert (made.tier, made.completion_window) == (Tier.BATCH, Window.TWO_HOURS)


def test_every_choice_is_a_job_with_a_seed_of_its_own():
    made = chat.to_requests(read(n=3, seed=5))
    assert [one.seed for one in made] == [5, 6, 7]
    assert {one.model_dump_json(exclude={"seed"}) for one in made} == {
        made[0].model_dump_json(exclude={"seed"})
    }
    assert [one.seed for one in chat.to_requests(read(n=2))] == [None, None]
    assert [one.seed for one in chat.to_requests(read(n=2, seed=2**63 - 1))] == [2**63 - 1, -(2**63)]


def test_what_is_kept_of_a_choice_tells_calls_apart():
    assert chat.echo(read()) == {"n": 1, "index": 0}
    assert chat.echo(read(n=2, user="u", safety_identifier="s", prompt_cache_key="k"), 1) == {
        "n": 2, "index": 1, "user": "u", "safety_identifier": "s", "prompt_cache_key": "k",
    }  # fmt: skip


def test_only_who_says_so_has_nothing_kept():
    assert [read(**given).store for given in ({}, {"store": None}, {"store": True}, {"store": False})] == [
        True, True, True, False,
    ]  # fmt: skip


def messages(*given):
    return [one.model_dump(exclude_defaults=True) for one in ask(messages=list(given)).input]


def test_messages_of_every_role_reach_the_job():
    result = {"role": "tool", "tool_call_id": "call_1", "name": "look", "content": [PART, PART]}
    assert messages(
        {"role": "system", "content": "a"},
        {"role": "developer", "content": [PART]},
        {"role": "user", "content": [PART, {"type": "text", "text": "!"}]},
        called(arguments='{"a": 1}'),
        result,
        {"role": "assistant", "content": [PART, {"type": "refusal", "refusal": "no"}]},
        {"role": "assistant", "content": None, "refusal": "I won't."},
    ) == [
        {"role": "system", "content": "a"},
        {"role": "developer", "content": "hi"},
        {"role": "user", "content": "hi!"},
        {"role": "assistant", "tool_calls": [{"id": "call_1", "name": "look", "arguments": '{"a": 1}'}]},
        {"role": "tool", "content": "hihi", "tool_call_id": "call_1"},
        {"role": "assistant", "content": "hino"},
        {"role": "assistant", "content": "I won't."},
    ]


def test_tools_and_the_choice_among_them_reach_the_job():
    look = tool(description="d", parameters={"type": "object"}, strict=True)
    made = ask(tools=[look, tool("find", strict=None)], tool_choice=named(), parallel_tool_calls=False)
    assert made.tools == [
        FunctionTool(name="look", description="d", parameters={"type": "object"}, strict=True),
        FunctionTool(name="find"),
    ]
    assert made.tool_choice == NamedFunction(name="look")
    assert made.parallel_tool_calls is False
    assert [ask(tools=[tool()], tool_choice=choice).tool_choice for choice in ("none", "auto", "required")] == [
        "none", "auto", "required",
    ]  # fmt: skip


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_of_tools_only_those_allowed_are_told_of(mode):
    made = ask(tools=[tool("a"), tool("b"), tool("c")], tool_choice=allowed("c", "a", mode=mode))
    assert [one.name for one in made.tools] == ["a", "c"]
    assert made.tool_choice == mode


def test_a_format_reaches_the_job():
    assert ask().text.format.type == "text"
    assert ask(response_format={"type": "json_object"}).text.format.type == "json_object"
    made = ask(response_format=schema_format({"type": "object"}, strict=None, description="d")).text.format
    assert (made.type, made.name, made.schema_, made.description) == (
        "json_schema",
        "out",
        {"type": "object"},
        "d",
    )


def spoken():
    said = [part.reasoning("hm", 1), part.text("Well"), part.call(0, "call_1", "look"), part.arguments(0, "{}")]
    return Log(job(), [Piece("<x>", [one]) for one in said])


def test_an_answer_can_be_sent_back_as_it_came():
    log = spoken()
    (choice,) = completion.describe([log.job], [log.output])["choices"]
    assert messages(choice["message"]) == [
        {
            "role": "assistant",
            "content": "Well",
            "tool_calls": [{"id": "call_1", "name": "look", "arguments": "{}"}],
        }
    ]
    everything = {**choice["message"], "audio": None, "function_call": None, "annotations": []}
    assert messages(everything) == messages(choice["message"])


def test_an_answer_that_the_sdk_put_together_from_a_stream_can_be_sent_back():
    log, state = spoken(), ChatCompletionStreamState()
    projector = Projector([log.job])
    for frame in log.live:
        for chunk in projector.feed(0, frame):
            state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    message = state.get_final_completion().choices[0].message
    assert isinstance(message, ParsedChatCompletionMessage)
    for sent in (message.model_dump(mode="json", exclude_unset=True), message.model_dump(mode="json")):
        assert messages(sent)[0]["content"] == "Well"


@pytest.mark.parametrize(
    "body", [{"messages": "hi"}, {"messages": [1]}, {"messages": [{"role": 1}]}, {"tools": {}}]
)
def test_what_has_no_shape_at_all_is_named_too(body):
    with pytest.raises(BodyInvalid) as error:
        ask(**body)
    assert error.value.param.split(".")[0] == next(iter(body))
