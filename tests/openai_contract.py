"""What OpenAI promises of an answer, checked: against the types of its SDK always, and against its published
OpenAPI document where that lies beside the repository. It knows nothing of how an answer was made.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args

import openai.types as sdk
import openai.types.chat as sdk_chat
import openai.types.responses as sdk_responses
from jsonschema import Draft202012Validator
from openai.types.responses.input_token_count_response import InputTokenCountResponse
from openai.types.responses.response_item import ResponseItem
from openai.types.shared import ErrorObject
from pydantic import TypeAdapter, ValidationError

DOCUMENT: Final = Path(__file__).parent.parent.parent / "shared" / "data" / "openai-openapi.json"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and all that came back, until the client had enough. `cut`: not to its end."""

    method: str
    path: str
    status: int
    content_type: str
    body: bytes
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """`schema` is the document's name, `type_` the SDK's type, `ours` the fields that the document lacks: we
    add them, or OpenAI does (`store`). `has_nulls`: OpenAI sends null where its document has a type alone.
    """

    schema: str
    type_: Any
    ours: frozenset[str] = frozenset()
    has_nulls: bool = False


RESPONSE: Final = Shape("Response", sdk_responses.Response, frozenset({"store"}))
ERROR: Final = Shape("Error", ErrorObject)
ITEM: Final = Shape("ItemResource", ResponseItem)
CHAT: Final = Shape("CreateChatCompletionResponse", sdk_chat.ChatCompletion)
CHUNK: Final = Shape("CreateChatCompletionStreamResponse", sdk_chat.ChatCompletionChunk)
COMPLETION: Final = Shape("CreateCompletionResponse", sdk.Completion)
MODEL: Final = Shape(
    "Model",
    sdk.Model,
    frozenset({"context_tokens", "max_output_tokens", "description", "engine", "workers", "slots", "tiers"}),
)
FILE: Final = Shape("OpenAIFile", sdk.FileObject)
BATCH: Final = Shape(
    "Batch",
    sdk.Batch,
    frozenset(
        {
            *("on_invalid", "dry_run", "retry_of", "webhook_url", "price_factor"),
            *("running", "cost", "currency", "estimate", "urls"),
        }
    ),
    has_nulls=True,
)
COUNT: Final = Shape("TokenCountsResource", InputTokenCountResponse)

_ID = r"[^/]+"
_PLAIN: Final = (
    (rf"POST /v1/responses(/{_ID}/cancel)?", RESPONSE),
    ("POST /v1/responses/input_tokens", COUNT),
    (rf"GET /v1/responses/{_ID}", RESPONSE),
    ("POST /v1/chat/completions", CHAT),
    ("POST /v1/completions", COMPLETION),
    (rf"GET /v1/models/{_ID}", MODEL),
    (rf"(POST /v1/files|GET /v1/files/{_ID})", FILE),
    (rf"(POST /v1/batches(/{_ID}/(cancel|retry))?|GET /v1/batches/{_ID})", BATCH),
)
_LISTS: Final = (
    (rf"GET /v1/responses/{_ID}/input_items", ITEM),
    ("GET /v1/models", MODEL),
    ("GET /v1/files", FILE),
    ("GET /v1/batches", BATCH),
)
_STREAMS: Final = (
    (rf"(POST /v1/responses|GET /v1/responses/{_ID})", None),
    ("POST /v1/chat/completions", CHUNK),
    ("POST /v1/completions", COMPLETION),
)


def faults_of(exchange: Exchange) -> list[str]:
    """What is wrong with an answer, in words; nothing, where all is well."""
    what = f"{exchange.method} {exchange.path}"
    if exchange.status >= 400:
        return _under(what, _faults_of_error(exchange.body))
    if exchange.content_type.startswith("text/event-stream"):
        return _under(what, _faults_of_stream(what, exchange))
    if exchange.cut or exchange.content_type == "application/octet-stream":
        return []
    body = json.loads(exchange.body)
    if exchange.method == "DELETE":
        return _under(what, [] if body.get("deleted") is True else [f"deleted? {body}"])
    if shape := _found(what, _LISTS):
        return _under(what, [fault for one in body["data"] for fault in faults(shape, one)])
    shape = _found(what, _PLAIN)
    return [f"{what}: not a call we know"] if shape is None else _under(what, faults(shape, body))


def faults(shape: Shape, value: Any) -> list[str]:
    documented = {k: v for k, v in value.items() if v is not None} if shape.has_nulls else value
    found = [*_by_sdk(shape.type_, value), *_by_document(shape.schema, documented)]
    if (document := _validators()) is not None:
        known = document.fields(shape.schema, value.get("type")) | shape.ours
        found += [f"field {name!r} is not OpenAI's" for name in value if name not in known]
    return found


def faults_of_event(event: dict[str, Any]) -> list[str]:
    """Of a Responses stream."""
    type_ = _event_types().get(event.get("type", ""))
    if type_ is None:
        return [f"no such event: {event}"]
    found = faults(Shape(type_.__name__, type_), event)
    if "response" in event:
        found += faults(RESPONSE, event["response"])
    return _under(event["type"], found)


def events_of(body: bytes) -> Iterator[tuple[str | None, str]]:
    """Name and data of each whole event; comments are skipped, an unfinished one is left out."""
    for block in body.decode().split("\n\n")[:-1]:
        lines = [line for line in block.split("\n") if not line.startswith(":")]
        if not lines:
            continue
        fields = [tuple(line.split(": ", 1)) for line in lines]
        assert {name for name, _ in fields} <= {"event", "data"}, block
        yield dict(fields).get("event"), "\n".join(value for name, value in fields if name == "data")


def _faults_of_error(body: bytes) -> list[str]:
    return faults(ERROR, json.loads(body)["error"])


def _faults_of_stream(what: str, exchange: Exchange) -> list[str]:
    is_chat = "completions" in exchange.path
    found = list(events_of(exchange.body))
    if is_chat and (not exchange.cut or found[-1:] == [(None, "[DONE]")]):
        name, data = found.pop()
        assert (name, data) == (None, "[DONE]"), f"{what} ends with {data}"
    faulty: list[str] = []
    for name, data in found:
        value = json.loads(data)
        if "error" in value and is_chat:
            faulty += faults(ERROR, value["error"])
        elif is_chat:
            shape = _found(what, _STREAMS)
            assert shape is not None
            faulty += faults(shape, _as_documented(value))
        else:
            faulty += faults_of_event(value)
            faulty += [] if name == value["type"] else [f"event {name} carries {value['type']}"]
    return faulty


def _as_documented(chunk: dict[str, Any]) -> dict[str, Any]:
    """OpenAI streams completions with nulls that its document has only for chats: finish_reason, usage."""
    if chunk.get("object") != "text_completion":
        return chunk
    choices = [{**c, "finish_reason": c["finish_reason"] or "stop"} for c in chunk["choices"]]
    said = {name: value for name, value in chunk.items() if (name, value) != ("usage", None)}
    return {**said, "choices": choices}


def _found(what: str, table: tuple[tuple[str, Shape | None], ...]) -> Shape | None:
    """The last that fits: `/input_tokens` also reads as an id."""
    return next((shape for pattern, shape in reversed(table) if re.fullmatch(pattern, what)), None)


def _under(what: str, found: list[str]) -> list[str]:
    return [f"{what}: {fault}" for fault in found]


def _by_sdk(type_: Any, value: Any) -> list[str]:
    try:
        _adapter(type_).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        lines = [f"SDK {one['loc']}: {one['msg']} ({str(one['input'])[:200]})" for one in error.errors()]
        return lines[:6]
    return []


@cache
def _adapter(type_: Any) -> TypeAdapter[Any]:
    return TypeAdapter(type_)


@cache
def _event_types() -> dict[str, Any]:
    union = get_args(sdk_responses.ResponseStreamEvent)[0]
    return {get_args(kind.model_fields["type"].annotation)[0]: kind for kind in get_args(union)}


def _by_document(schema: str, value: Any) -> list[str]:
    document = _validators()
    if document is None:
        return []
    found = sorted(document.of(schema).iter_errors(value), key=lambda error: -len(error.absolute_path))
    return [f"document {list(error.absolute_path)}: {_deepest(error)}" for error in found[:6]]


def _deepest(error: Any) -> str:
    """Of a union, why the branch that fits best does not."""
    while error.context:
        error = max(error.context, key=lambda one: (len(one.absolute_path), one.validator != "enum"))
    return f"{list(error.absolute_path)} {error.message[:300]}"


class _Document:
    def __init__(self) -> None:
        self._whole = _as_json_schema(json.loads(DOCUMENT.read_text()))
        self._schemas = self._whole["components"]["schemas"]
        self._made: dict[str, Draft202012Validator] = {}

    def of(self, schema: str) -> Draft202012Validator:
        if schema not in self._made:
            self._made[schema] = Draft202012Validator({"$ref": f"#/components/schemas/{schema}", **self._whole})
        return self._made[schema]

    def fields(self, schema: str, kind: str | None) -> set[str]:
        """The fields that an object of this schema may have; of a union, of those of its `type`."""
        return _fields({"$ref": f"#/components/schemas/{schema}"}, self._schemas, kind)


def _fields(node: dict[str, Any], schemas: dict[str, Any], kind: str | None) -> set[str]:
    if "$ref" in node:
        node = schemas[node["$ref"].rsplit("/", 1)[1]]
    properties = node.get("properties", {})
    of_type = properties.get("type", {}).get("enum")
    if of_type and kind is not None and kind not in of_type:
        return set()
    below = [one for word in ("allOf", "anyOf", "oneOf") for one in node.get(word, [])]
    return set(properties).union(*(_fields(one, schemas, kind) for one in below))


def _as_json_schema(node: Any) -> Any:
    """Two words that mean more in OpenAPI: `nullable` (of 3.0, still in the document), and `oneOf`, which a
    discriminator decides there although several branches may accept.
    """
    if isinstance(node, list):
        return [_as_json_schema(one) for one in node]
    if not isinstance(node, dict):
        return node
    made = {("anyOf" if key == "oneOf" else key): _as_json_schema(one) for key, one in node.items()}
    if made.pop("nullable", False) is True:
        return {"anyOf": [made, {"type": "null"}]}
    return made


@cache
def _validators() -> _Document | None:
    return _Document() if DOCUMENT.exists() else None
