"""What docs/openai.md says of endpoints, parameters and limits is what the code does."""

import json
import re
from pathlib import Path
from types import NoneType

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as SdkChat
from openai.types.completion_create_params import CompletionCreateParamsBase as SdkCompletion
from openai.types.responses.input_token_count_params import InputTokenCountParams as SdkCount
from openai.types.responses.response_create_params import ResponseCreateParamsBase as SdkResponse

from app.api.calls import lanes, responses_socket
from app.jobs import requests, schemas, tools
from app.openai import sampling
from app.openai.chat.body import CreateChat
from app.openai.completions.body import CreateCompletion
from app.openai.responses import items, options
from app.openai.responses.body import CountInputTokens, CreateResponse
from config.settings import Settings

PAGE = (Path(__file__).parent.parent.parent / "docs" / "openai.md").read_text()
BODIES = {
    "POST /v1/responses": (CreateResponse, SdkResponse),
    "POST /v1/responses/input_tokens": (CountInputTokens, SdkCount),
    "POST /v1/chat/completions": (CreateChat, SdkChat),
    "POST /v1/completions": (CreateCompletion, SdkCompletion),
}
LIMITS = {
    "bytes of a body": Settings.model_fields["max_body_bytes"].default,
    "characters of input": requests.MAX_INPUT_CHARS,
    "messages of a conversation": requests.MAX_MESSAGES,
    "input items": items.MAX_ITEMS,
    "tools": tools.MAX_TOOLS,
    "characters of a tool": tools.MAX_TOOL_DESCRIPTION_CHARS,
    "calls in one message": tools.MAX_TOOL_CALLS,
    "characters of a call": tools.MAX_ARGUMENTS_CHARS,
    "bytes of a JSON schema": schemas.MAX_SCHEMA_BYTES,
    "levels of a JSON schema": schemas.MAX_SCHEMA_DEPTH,
    "properties in a JSON schema": schemas.MAX_SCHEMA_PROPERTIES,
    "values of `enum`": schemas.MAX_SCHEMA_VALUES,
    "characters of those values": schemas.MAX_SCHEMA_VALUE_CHARS,
    "alternatives of": schemas.MAX_SCHEMA_ALTERNATIVES,
    "bounds in a JSON schema": schemas.MAX_SCHEMA_BOUND,
    "stop strings": requests.MAX_STOP_STRINGS,
    "characters of a stop string": requests.MAX_STOP_CHARS,
    "pairs of metadata": requests.MAX_METADATA_PAIRS,
    "tokens in `logit_bias`": requests.MAX_LOGIT_BIAS,
    "choices of a call": sampling.MAX_CHOICES,
    "tokens of output": sampling.MAX_TOKENS,
    "bytes of a file": Settings.model_fields["max_file_bytes"].default,
    "files of an account": Settings.model_fields["max_files"].default,
    "bytes of all files": Settings.model_fields["max_file_bytes_kept"].default,
    "seconds that a call waits (": Settings.model_fields["max_sync_seconds"].default,
    "seconds that a call waits for a worker": Settings.model_fields["worker_absence_seconds"].default,
    "seconds that an unstored": Settings.model_fields["unstored_seconds"].default,
    "days that a response is kept": Settings.model_fields["retention_days"].default,
    "seconds that a WebSocket lasts": responses_socket.MAX_SECONDS,
    "lanes of a WebSocket": lanes.MAX_LANES,
    "requests that wait on a WebSocket": lanes.MAX_WAITING,
}


def rows(heading):
    """The cells of each row of the first table below a heading."""
    section = re.split(r"^#+ ", PAGE.partition(f"# {heading}\n")[2], flags=re.MULTILINE)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def said_of(heading):
    """Verdict and note of every parameter of an endpoint."""
    found = {}
    for names, verdict, note in rows(heading):
        for name in re.findall(r"`([\w.]+)`", names):
            assert name not in found, f"{name} is there twice"
            found[name] = (verdict, note)
    return found


def done_by(body):
    """Every parameter that a body knows, nested ones that are refused included: what is harmless of it where it
    is refused, else None.
    """
    known = {name: () if field.annotation is NoneType else None for name, field in body.model_fields.items()}
    known |= body.UNSUPPORTED
    for part in (options.TextConfig, options.Reasoning):
        if issubclass(body, CreateResponse):
            known |= {part.WHERE + name: harmless for name, harmless in part.UNSUPPORTED.items()}
    if "stream_options" in known:
        known["stream_options.include_obfuscation"] = (False,)
    return known


@pytest.mark.parametrize("endpoint", BODIES)
def test_every_parameter_is_in_the_table_with_its_verdict(endpoint):
    said, done = said_of(endpoint), done_by(BODIES[endpoint][0])
    assert set(said) == set(done)
    for name, harmless in done.items():
        verdict, note = said[name]
        assert verdict in ({"refused"} if harmless is not None else {"supported", "accepted"}), name
        for value in harmless or ():
            assert f"`{value if isinstance(value, str) and value else json.dumps(value)}`" in note, name


@pytest.mark.parametrize("endpoint", BODIES)
def test_every_parameter_of_the_sdk_is_in_the_table(endpoint):
    sdk = BODIES[endpoint][1]
    assert set(sdk.__annotations__) - set(said_of(endpoint)) == set()


def test_every_route_is_in_the_table_of_endpoints():
    from app.api import create_app
    from app.api.openapi import document

    said = {re.search(r"`(\w+ [^`]+)`", cells[0])[1]: cells[1] for cells in rows("Endpoints")}
    ours = re.compile(
        r"/v1/((responses|chat/completions|completions|models|files|webhook_endpoints|webhook_event_types)\b"
        r"|batches(/{batch_id}(/cancel)?)?$)"
    )
    served = {
        f"{method.upper()} {path}"
        for path, methods in document(create_app())["paths"].items()
        for method in methods
        if ours.match(path)
    }
    assert {endpoint for endpoint, verdict in said.items() if verdict == "supported"} == served
    assert not {endpoint for endpoint, verdict in said.items() if verdict == "refused"} & served


def test_every_limit_is_that_of_the_code():
    said = dict(rows("Limits"))
    for beginning, limit in LIMITS.items():
        (name,) = [name for name in said if re.match(rf"{re.escape(beginning)}(?!\w)", name)]
        assert said.pop(name) == f"{limit:,.0f}", name
    assert not said
