"""JSON of a client's into values, or into an error that names the field and its limit. It knows no surface and
nothing of how the JSON came.
"""

import json
import re
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from app.jobs.errors import RequestInvalid

Shape = TypeVar("Shape", bound=BaseModel)
Path = tuple[int | str, ...]

MAX_DEPTH: Final = 64
MAX_NAME_CHARS: Final = 200

_CONTAINERS: Final = (dict, list)
_NAME_ENDS: Final = re.compile(rb'"[ \t\r\n]*:')


def load_object(raw: bytes, *, what: str = "The body") -> dict[str, Any]:
    """The JSON object that `raw` is, with no name given twice and nothing that cannot be stored; errors call it
    `what`. Raises `RequestInvalid`, with the column where it is no JSON.
    """
    try:
        # orjson refuses NaN, lone surrogates and nesting beyond 1,024.
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _explain_json(raw, error, what) from error
    if not isinstance(body, dict):
        raise RequestInvalid(None, f"{what} must be a JSON object.")
    names = _count_names(body, what)
    if b"\\u0000" in raw:
        _refuse_null_characters(body, what)
    # A name given twice ends more often than it is found. Such an end may stand in a text, too: then it is only
    # looked at again.
    if len(_NAME_ENDS.findall(raw)) != names:
        # Only this parser shows an object's names as they were written; as integers it refuses long numbers.
        json.loads(raw, object_pairs_hook=_without_duplicates, parse_int=float)
    return body


def parse(shape: type[Shape], values: dict[str, Any]) -> Shape:
    """Raises `RequestInvalid`, and what the shape's own validators refuse with."""
    try:
        return shape.model_validate(values)
    except ValidationError as error:
        raise _explain(shape, error, values) from error


def _explain(shape: type[BaseModel], invalid: ValidationError, values: dict[str, Any]) -> RequestInvalid:
    """The error that went deepest into what the client sent: of a union's branches, the one that was meant."""
    found = [(_path(details["loc"], values), details) for details in invalid.errors(include_url=False)]
    path, details = max(found, key=lambda pair: len(pair[0]))
    param = _name(path)
    reason = details["msg"].removeprefix("Value error, ").removesuffix(".")
    if not param:
        # What a shape says of several fields begins with the name of the first.
        subject = reason.partition(" ")[0]
        return RequestInvalid(subject if subject in shape.model_fields else None, f"Invalid body: {reason}.")
    match details["type"]:
        case "extra_forbidden":
            return RequestInvalid(param, f"Unknown parameter: '{param}'.")
        case "missing":
            return RequestInvalid(param, f"Missing required parameter: '{param}'.")
        case _:
            return RequestInvalid(param, f"Invalid '{param}': {reason}.")


def _path(loc: tuple[int | str, ...], values: Any) -> Path:
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


def _explain_json(raw: bytes, error: orjson.JSONDecodeError, what: str) -> RequestInvalid:
    """Name the field where the only fault is a lone surrogate, which Python's own parser accepts."""
    column = _column(raw, error)
    try:
        found = next((path for path, value in _strings(json.loads(raw), what) if not _is_unicode(value)), None)
    except (ValueError, RecursionError):
        found = None
    if found is None:
        # A body may be of many lines; of one, its column says it all.
        reason = str(error) if error.lineno > 1 or column is None else f"{error.msg} at column {column}"
        return RequestInvalid(None, f"{what} is not valid JSON: {reason}.", column)
    name = _name(found)
    return RequestInvalid(name, f"'{name}' contains half of a surrogate pair, which is not text.", column)


def _column(raw: bytes, error: orjson.JSONDecodeError) -> int | None:
    """Where JSON on one line goes wrong, from 1, in characters."""
    try:
        raw.decode()
    except UnicodeDecodeError as undecodable:
        return len(raw[: undecodable.start].decode()) + 1
    return error.colno if error.lineno == 1 else None


def _count_names(body: dict[str, Any], what: str) -> int:
    """Of all objects in `body`. Without recursion, as the value is a client's. Raises `RequestInvalid` for deep
    nesting.
    """
    names = 0
    level: list[Any] = [body]
    for _ in range(MAX_DEPTH - 1):
        below: list[Any] = []
        for node in level:
            children = node
            if isinstance(node, dict):
                names += len(node)
                children = node.values()
            below += [child for child in children if isinstance(child, _CONTAINERS)]
        if not below:
            return names
        level = below
    if any(level):
        # Raises, and says where.
        deque(_strings(body, what), maxlen=0)
    return names


def _refuse_null_characters(body: dict[str, Any], what: str) -> None:
    for path, value in _strings(body, what):
        if "\x00" in value:
            name = _name(path)
            raise RequestInvalid(name, f"'{name}' contains the character U+0000, which cannot be stored.")


def _strings(body: Any, what: str) -> Iterator[tuple[Path, str]]:
    """Every string and name with where it is, without recursion. Raises `RequestInvalid` for deep nesting."""
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
    raise RequestInvalid(
        _name(level[0][0][:1]), f"{what} is nested too deeply; the limit is {MAX_DEPTH} levels."
    )


def _without_duplicates(pairs: list[tuple[str, Any]]) -> None:
    names = {name for name, _ in pairs}
    if len(names) < len(pairs):
        twice = next(name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1)
        raise RequestInvalid(_name((twice,)), f"'{_name((twice,))}' is given twice.")


def _is_unicode(value: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in value)


def _name(path: Path) -> str:
    """A path as clients write it, without what no answer or log should carry."""
    return ".".join(map(str, path)).replace("\x00", "").encode(errors="replace").decode()[:MAX_NAME_CHARS]
