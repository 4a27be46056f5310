"""Request bodies and query strings into values, or into an error that names the field and its limit."""

import json
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import orjson
from flask import request
from pydantic import BaseModel, ValidationError
from werkzeug.exceptions import RequestEntityTooLarge

from app.api.errors import BodyInvalid
from config.settings import settings

Shape = TypeVar("Shape", bound=BaseModel)
Path = tuple[int | str, ...]

MAX_DEPTH: Final = 64
MAX_NAME_CHARS: Final = 200


def parse_body(shape: type[Shape]) -> Shape:
    """The JSON body as `shape`. Raises `BodyInvalid`."""
    raw = request.get_data(cache=False)
    # Werkzeug cuts a body without a length at the limit.
    if request.content_length is None and len(raw) >= settings().max_body_bytes:
        raise RequestEntityTooLarge
    try:
        # orjson refuses NaN, lone surrogates and nesting beyond 1,024.
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _explain_json(raw, error) from error
    if not isinstance(body, dict):
        raise BodyInvalid("The body must be a JSON object.")
    for path, value in _strings(body):
        if "\x00" in value:
            name = _name(path)
            raise BodyInvalid(f"'{name}' contains the character U+0000, which cannot be stored.", name)
    # Only this parser shows an object's names as they were written; as integers it refuses long numbers.
    json.loads(raw, object_pairs_hook=_without_duplicates, parse_int=float)
    return parse(shape, body)


def parse_query(shape: type[Shape]) -> Shape:
    """The query string as `shape`, but for names with a bracket. Raises `BodyInvalid`."""
    return parse(shape, {name: value for name, value in query_values().items() if "[" not in name})


def query_values() -> dict[str, str]:
    """The query string, fit for the database. Raises `BodyInvalid`."""
    values = request.args.to_dict()
    for name, value in values.items():
        if "\x00" in name + value:
            shown = name.replace("\x00", "")
            raise BodyInvalid(f"'{shown}' contains the character U+0000, which cannot be stored.", shown)
    return values


def parse(shape: type[Shape], values: dict[str, Any]) -> Shape:
    try:
        return shape.model_validate(values)
    except ValidationError as error:
        raise _explain(shape, error, values) from error


def _explain(shape: type[BaseModel], invalid: ValidationError, values: dict[str, Any]) -> BodyInvalid:
    """The error that went deepest into what the client sent: of a union's branches, the one that was meant."""
    found = [(_path(details["loc"], values), details) for details in invalid.errors(include_url=False)]
    path, details = max(found, key=lambda pair: len(pair[0]))
    param = _name(path)
    reason = details["msg"].removeprefix("Value error, ").removesuffix(".")
    if not param:
        # What a shape says of several fields begins with the name of the first.
        subject = reason.partition(" ")[0]
        return BodyInvalid(f"Invalid body: {reason}.", subject if subject in shape.model_fields else None)
    match details["type"]:
        case "extra_forbidden":
            return BodyInvalid(f"Unknown parameter: '{param}'.", param)
        case "missing":
            return BodyInvalid(f"Missing required parameter: '{param}'.", param)
        case _:
            return BodyInvalid(f"Invalid '{param}': {reason}.", param)


def _path(loc: tuple[int | str, ...], values: Any) -> tuple[int | str, ...]:
    """`loc` without the names of union branches, which are not in the client's JSON."""
    path: list[int | str] = []
    node = values
    for index, part in enumerate(loc):
        inside = part in node if isinstance(node, dict) else isinstance(node, list) and isinstance(part, int)
        if inside:
            node = node[part]
        elif index < len(loc) - 1 or not isinstance(node, dict):
            continue
        path.append(part)
    return tuple(path)


def _explain_json(raw: bytes, error: orjson.JSONDecodeError) -> BodyInvalid:
    """Name the field where the only fault is a lone surrogate, which Python's own parser accepts."""
    try:
        found = next((path for path, value in _strings(json.loads(raw)) if not _is_unicode(value)), None)
    except (ValueError, RecursionError):
        found = None
    if found is None:
        return BodyInvalid(f"The body is not valid JSON: {error}.")
    name = _name(found)
    return BodyInvalid(f"'{name}' contains half of a surrogate pair, which is not text.", name)


def _strings(body: Any) -> Iterator[tuple[Path, str]]:
    """Every string and name with where it is, without recursion: the value is a client's. Raises
    `BodyInvalid` for deep nesting.
    """
    level: list[tuple[Path, Any]] = [((), body)]
    for _ in range(MAX_DEPTH):
        below: list[tuple[Path, Any]] = []
        for path, value in level:
            if isinstance(value, str):
                yield path, value
            elif isinstance(value, dict):
                yield from ((path, name) for name in value)
                below += [((*path, name), child) for name, child in value.items()]
            elif isinstance(value, list):
                below += [((*path, index), child) for index, child in enumerate(value)]
        if not below:
            return
        level = below
    raise BodyInvalid(
        f"The body is nested too deeply; the limit is {MAX_DEPTH} levels.", _name(level[0][0][:1])
    )


def _without_duplicates(pairs: list[tuple[str, Any]]) -> None:
    names = {name for name, _ in pairs}
    if len(names) < len(pairs):
        twice = next(name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1)
        raise BodyInvalid(f"'{_name((twice,))}' is given twice.", _name((twice,)))


def _is_unicode(value: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in value)


def _name(path: Path) -> str:
    """A path as clients write it, without what no answer or log should carry."""
    return ".".join(map(str, path)).replace("\x00", "").encode(errors="replace").decode()[:MAX_NAME_CHARS]
