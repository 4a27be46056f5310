"""What a route tells the OpenAPI document about itself, written beside the route."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

View = TypeVar("View", bound=Callable[..., Any])

ATTRIBUTE = "__openapi__"


@dataclass(frozen=True, slots=True)
class Description:
    """`answers` maps a status to its shape (None: no JSON) and a sentence; `errors` lists error statuses. A
    `form` is a body that is multipart/form-data.
    """

    summary: str
    answers: dict[int, tuple[type[BaseModel] | None, str]]
    body: type[BaseModel] | None = None
    form: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    headers: tuple[tuple[str, str], ...] = ()
    errors: tuple[int, ...] = ()
    media_types: tuple[str, ...] = ("application/json",)


def describe(summary: str, **rest: Any) -> Callable[[View], View]:
    def mark(view: View) -> View:
        setattr(view, ATTRIBUTE, Description(summary, **rest))
        return view

    return mark
