"""Request bodies and query strings into values, or into an error that names the field and its limit."""

from collections.abc import Iterator
from typing import Any, TypeVar

import orjson
from flask import request
from pydantic import BaseModel, ValidationError

from app.api.errors import BodyInvalid

Shape = TypeVar("Shape", bound=BaseModel)


def parse_body(shape: type[Shape]) -> Shape:
    """The JSON body as `shape`. Raises `BodyInvalid`."""
    raw = request.get_data(cache=False)
    try:
        # orjson refuses NaN, lone surrogates and nesting beyond 1,024.
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BodyInvalid(f"The body is not valid JSON: {error}.") from error
    if not isinstance(body, dict):
        raise BodyInvalid("The body must be a JSON object.")
    if b"\\u0000" in raw and (path := next(_nul_paths(body, ()), None)) is not None:
        name = ".".join(map(str, path))
        raise BodyInvalid(f"'{name}' contains the character U+0000, which cannot be stored.", name)
    return parse(shape, body)


def parse_query(shape: type[Shape]) -> Shape:
    """The query string as `shape`. Raises `BodyInvalid`."""
    return parse(shape, {name: value for name, value in request.args.items() if "[" not in name})


def parse(shape: type[Shape], values: dict[str, Any]) -> Shape:
    try:
        return shape.model_validate(values)
    except ValidationError as error:
        raise _explain(error, values) from error


def _explain(invalid: ValidationError, values: dict[str, Any]) -> BodyInvalid:
    """The error that went deepest into what the client sent: of a union's branches, the one that was meant."""
    found = [(_path(details["loc"], values), details) for details in invalid.errors(include_url=False)]
    path, details = max(found, key=lambda pair: len(pair[0]))
    param = ".".join(map(str, path)) or None
    message = details["msg"].removeprefix("Value error, ")
    if details["type"] == "extra_forbidden":
        message = f"Unknown parameter: '{param}'."
    elif details["type"] == "missing":
        message = f"Missing required parameter: '{param}'."
    else:
        message = f"Invalid '{param}': {message}." if param else f"Invalid body: {message}."
    return BodyInvalid(message.replace("..", "."), param)


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


def _nul_paths(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, str):
        if "\x00" in value:
            yield path
    elif isinstance(value, dict):
        for name, child in value.items():
            yield from _nul_paths(name, (*path, name.replace("\x00", "")))
            yield from _nul_paths(child, (*path, name))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _nul_paths(child, (*path, index))
