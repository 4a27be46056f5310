"""`/livez`: this process answers. `/readyz`: it can do its work."""

from typing import Literal

from flask import Response, jsonify
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from app.api import draining
from app.api.auth import public
from app.api.describe import describe
from app.db import transaction
from app.redis import RedisError, client

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
    checks = {"database": _database(), "redis": _redis(), "server": _server()}
    is_ready = all(state == "ok" for state in checks.values())
    return jsonify(status="ok" if is_ready else "unavailable", checks=checks), 200 if is_ready else 503


def _database() -> str:
    try:
        with transaction() as session:
            session.execute(text("SET LOCAL statement_timeout = '2s'"))
            session.execute(text("SELECT 1 FROM jobs LIMIT 1"))
    except SQLAlchemyError as error:
        return f"unreachable ({type(error).__name__})"
    return "ok"


def _redis() -> str:
    try:
        client().ping()
    except (RedisError, OSError) as error:
        return f"unreachable ({type(error).__name__})"
    return "ok"


def _server() -> str:
    return "stopping" if draining.has_begun() else "ok"
