"""What is not supported is refused by its name, to a client that finds the name in its exception."""

import pytest
from openai import AuthenticationError, BadRequestError, NotFoundError, UnprocessableEntityError

from app.jobs.requests import MAX_INPUT_CHARS, MAX_METADATA_PAIRS, MAX_STOP_STRINGS
from app.jobs.schemas import MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH
from app.jobs.tools import MAX_TOOLS
from tests.acceptance.openai.conftest import MODEL
from tests.eventually import eventually

SAID = [{"role": "user", "content": "[[tokens=2]] Hello."}]
PICTURE = {"url": "data:image/png;base64,AAAA"}


def refused(call, **body):
    with pytest.raises((BadRequestError, UnprocessableEntityError)) as refusal:
        call(**body)
    assert refusal.value.status_code == 400
    return refusal.value


@pytest.fixture
def respond(client):
    return lambda **body: client.responses.create(**{"model": MODEL, "input": "[[tokens=2]] Hi.", **body})


@pytest.fixture
def chat(client):
    return lambda **body: client.chat.completions.create(**{"model": MODEL, "messages": SAID, **body})


@pytest.fixture
def complete(client):
    return lambda **body: client.completions.create(
        **{"model": MODEL, "prompt": "Hi.", "max_tokens": 2, **body}
    )


@pytest.mark.parametrize(
    "body",
    [
        {"conversation": "conv_1"},
        {"prompt": {"id": "pmpt_1"}},
        {"include": ["file_search_call.results"]},
        {"max_tool_calls": 3},
        {"moderation": {"model": "omni"}},
        {"context_management": [{"type": "compaction"}]},
        {"reasoning": {"effort": "high"}},
        {"text": {"verbosity": "high"}},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": PICTURE["url"]}]}]},
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]}]},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        {"stream": True, "stream_options": {"include_obfuscation": True}},
    ],
    ids=lambda body: next(iter(body)),
)
def test_responses_refuses_by_name(respond, body):
    name = next(name for name in body if name != "stream")
    error = refused(respond, **body)
    assert error.param.startswith(name), error.message
    assert error.code
    assert error.type == "invalid_request_error"


@pytest.mark.parametrize(
    "body",
    [
        {"audio": {"voice": "alloy", "format": "wav"}},
        {"modalities": ["text", "audio"]},
        {"functions": [{"name": "f", "parameters": {}}]},
        {"function_call": "auto"},
        {"prediction": {"type": "content", "content": "x"}},
        {"reasoning_effort": "high"},
        {"verbosity": "low"},
        {"web_search_options": {}},
        {"n": 9},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": PICTURE}]}]},
        {"messages": [{"role": "user", "name": "bob", "content": "Hi."}]},
        {"tools": [{"type": "custom", "custom": {"name": "x"}}]},
    ],
    ids=lambda body: next(iter(body)),
)
def test_chat_refuses_by_name(chat, body):
    error = refused(chat, **body)
    assert error.param.startswith(next(iter(body))), error.message


@pytest.mark.parametrize(
    "body",
    [
        {"suffix": "the end"},
        {"echo": True, "logprobs": 1},
        {"best_of": 3},
        {"prompt": [1, 2, 3]},
        {"n": 9},
        {"logprobs": 6},
    ],
    ids=lambda body: next(iter(body)),
)
def test_completions_refuses_by_name(complete, body):
    error = refused(complete, **body)
    assert error.param.startswith(next(iter(body))), error.message


def test_what_nobody_knows_is_refused_everywhere(respond, chat, complete):
    for call in (respond, chat, complete):
        error = refused(call, extra_body={"surprise": 1})
        assert error.param == "surprise"
        assert "surprise" in error.message


def test_what_says_nothing_is_accepted_everywhere(respond, chat, complete):
    nothing = dict.fromkeys(("user", "seed", "stop", "logit_bias", "suffix", "best_of"))
    assert complete(extra_body=nothing)
    assert chat(extra_body=dict.fromkeys(("audio", "functions", "prediction", "tools", "tool_choice", "n")))
    assert chat(extra_body={"modalities": ["text"], "verbosity": "medium", "store": False})
    assert respond(
        extra_body=dict.fromkeys(("conversation", "prompt", "include", "reasoning", "tools", "text"))
    )
    assert respond(prompt_cache_key="k", safety_identifier="s", user="u", stream=False).user == "u"


def nested(depth):
    schema = {"type": "string"}
    while depth > 1:
        schema = {"type": "object", "properties": {"a": schema}}
        depth -= 2
    return schema


def schema_of(schema):
    return {"format": {"type": "json_schema", "name": "x", "schema": schema}}


def test_every_limit_holds_at_its_edge(respond, chat):
    """One below is let in, one above is refused by name."""
    tools = [
        {"type": "function", "name": f"f{n}", "parameters": {"type": "object"}, "strict": False}
        for n in range(MAX_TOOLS + 1)
    ]
    assert respond(tools=tools[:-1], tool_choice="none")
    assert refused(respond, tools=tools).param == "tools"
    pairs = {f"k{n}": "v" for n in range(MAX_METADATA_PAIRS + 1)}
    assert respond(metadata=dict(list(pairs.items())[:-1]))
    assert refused(respond, metadata=pairs).param == "metadata"
    stops = [f"stop {n}" for n in range(MAX_STOP_STRINGS + 1)]
    assert chat(stop=stops[:-1])
    assert refused(chat, stop=stops).param == "stop"
    assert respond(text=schema_of(nested(MAX_SCHEMA_DEPTH - 1)))
    assert refused(respond, text=schema_of(nested(MAX_SCHEMA_DEPTH + 1))).param.startswith("text")
    large = {"type": "string", "description": "x" * (MAX_SCHEMA_BYTES + 1)}
    assert refused(respond, text=schema_of(large)).param.startswith("text")
    assert refused(respond, input="x" * (MAX_INPUT_CHARS + 1)).param == "input"
    assert refused(respond, input="word " * 5000).code == "context_length_exceeded"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "(a+)+$(" + "x" * 200},
        {"$ref": "#"},
        {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}},
        {"type": "no-such-type"},
        {"type": "array", "minItems": 10**9, "items": {"type": "string"}},
        {"enum": []},
    ],
    ids=["pattern", "endless", "nowhere", "type", "items", "enum"],
)
def test_a_hostile_schema_harms_nobody(client, schema):
    """It is refused by name, fails or is cut at its limit; who comes next is served as before."""

    def ended():
        return client.responses.retrieve(response.id).status not in {"queued", "in_progress"}

    body = {"model": MODEL, "input": "Hello.", "text": schema_of(schema), "max_output_tokens": 16}
    try:
        response = client.responses.create(**body, background=True)
    except BadRequestError as refusal:
        param = refusal.param
    else:
        param = "text.format"
        eventually(ended, 30)
    assert param.startswith("text.format")
    assert client.responses.create(model=MODEL, input="[[say=Fine.]]").output_text == "Fine."


def test_a_wrong_key_is_refused(make_client):
    with pytest.raises(AuthenticationError):
        make_client(api_key="sk-nothing").responses.create(model=MODEL, input="Hi.")


def test_another_account_sees_nothing(client, make_client):
    from app.accounts import keys
    from app.db import transaction

    with transaction() as session:
        secret = keys.create_key(session, keys.create_account(session, "mallory"), "test")[1]
    mallory = make_client(api_key=secret)
    response = client.responses.create(model=MODEL, input="[[say=Secret.]]")
    for call in (
        mallory.responses.retrieve,
        mallory.responses.cancel,
        mallory.responses.delete,
        mallory.responses.input_items.list,
    ):
        with pytest.raises(NotFoundError):
            call(response.id)
    with pytest.raises(BadRequestError):
        mallory.responses.create(model=MODEL, input="Hi.", previous_response_id=response.id)
