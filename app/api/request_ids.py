"""`x-request-id` on every answer, the client's own where it is sane, and a line in the log that quotes it.
Query strings are not logged: they may carry a ticket.
"""

import re
from typing import Final

import structlog
from flask import Flask, Response, g, request

from app import clock
from app.ids import new_id

log = structlog.get_logger(__name__)

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
    g.began_at = clock.monotonic()
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=request_id())


def _mark(response: Response) -> Response:
    response.headers["x-request-id"] = request_id()
    if request.blueprint != "health":
        log.info(
            "request",
            method=request.method,
            path=request.path,
            status=response.status_code,
            ms=round(1000 * (clock.monotonic() - g.began_at), 1),
        )
    return response
