"""`x-request-id` on every answer: the client's own where it is sane, else a fresh one."""

import re
from typing import Final

import structlog
from flask import Flask, Response, g, request

from app.ids import new_id

_SANE: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def init_app(app: Flask) -> None:
    app.before_request(_begin)
    app.after_request(_mark)


def request_id() -> str:
    if "request_id" not in g:
        given = request.headers.get("x-request-id", "")
        g.request_id = given if _SANE.fullmatch(given) else new_id("req")
    found: str = g.request_id
    return found


def _begin() -> None:
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=request_id())


def _mark(response: Response) -> Response:
    response.headers["x-request-id"] = request_id()
    return response
