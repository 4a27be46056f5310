"""`/livez`: this process answers. `/readyz`: it can do its work."""

from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NoAnswer
from functools import cache
from typing import Any, Final, Literal

from flask import Response, jsonify
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from app.api import draining
from app.api.auth import public
from app.api.describe import describe
from app.db import transaction
from app.redis import RedisError, client

CHECK_SECONDS: Final = 2.0

# For load balancers and supervisors, which have no key.
blueprint = public("health")


class Health(BaseModel):
    status: Literal["ok", "unavailable"]
    checks: dict[str, str] = {}


@blueprint.get("/livez")
@describe("Whether the process lives", answers={200: (Health, "It does.")})
def live() -> Response:
    return jsonify(status="ok", checks={})


@blueprint.get("/readyz")
@describe("Whether the process can work", answers={200: (Health, "It can."), 503: (Health, "Why it cannot.")})
def ready() -> tuple[Response, int]:
    asked: dict[str, Future[Any]] = {
        "database": _checkers().submit(_ask_database),
        "redis": _checkers().submit(client().ping),
    }
    checks = {name: _state(answer) for name, answer in asked.items()}
    checks["server"] = "stopping" if draining.has_begun() else "ok"
    is_ready = all(state == "ok" for state in checks.values())
    return jsonify(status="ok" if is_ready else "unavailable", checks=checks), 200 if is_ready else 503


@cache
def _checkers() -> ThreadPoolExecutor:
    """Made at first use, hence after a fork: a server that hangs must not hang the answer that says so."""
    return ThreadPoolExecutor(4, "readyz")


def _ask_database() -> None:
    with transaction() as session:
        session.execute(text("SET LOCAL statement_timeout = '2s'"))
        session.execute(text("SELECT 1 FROM jobs LIMIT 1"))


def _state(answer: Future[Any]) -> str:
    try:
        answer.result(CHECK_SECONDS)
    except NoAnswer:
        answer.cancel()
        return f"no answer within {CHECK_SECONDS:g} s"
    except (SQLAlchemyError, RedisError, OSError) as error:
        return f"unreachable ({type(error).__name__})"
    return "ok"
