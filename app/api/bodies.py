"""Request bodies and query strings into values, or into an error that names the field and its limit."""

from typing import Any, TypeVar

from flask import request
from pydantic import BaseModel
from werkzeug.exceptions import RequestEntityTooLarge

from app.api.errors import BodyInvalid
from app.jobs.errors import RequestInvalid
from app.surfaces import parsing
from config.settings import settings

Shape = TypeVar("Shape", bound=BaseModel)


def parse_body(shape: type[Shape]) -> Shape:
    """The JSON body as `shape`. Raises `BodyInvalid`."""
    raw = request.get_data(cache=False)
    # Werkzeug cuts a body without a length at the limit.
    if request.content_length is None and len(raw) >= settings().max_body_bytes:
        raise RequestEntityTooLarge
    try:
        body = parsing.load_object(raw)
    except RequestInvalid as error:
        raise BodyInvalid(str(error), error.param) from error
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
        return parsing.parse(shape, values)
    except RequestInvalid as error:
        raise BodyInvalid(str(error), error.param) from error
