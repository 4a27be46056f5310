"""The OpenAPI 3.1 document, made from the routes and the shapes that they use, and a page that shows it."""

import json
import re
from functools import cache
from http import HTTPStatus
from typing import Any, Final

from flask import Flask, Response, current_app, jsonify, redirect, render_template_string
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from werkzeug.wrappers import Response as Redirect

from app.api.auth import public
from app.api.describe import ATTRIBUTE, Description, describe
from app.api.docs_page import PAGE

# The document says what the API is, not what is in it.
blueprint = public("openapi")

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_OPEN: Final = frozenset({"health", "openapi"})


class ErrorBody(BaseModel):
    message: str
    type: str
    code: str | None
    param: str | None


class ErrorEnvelope(BaseModel):
    error: ErrorBody


@blueprint.get("/openapi.json")
@describe("This document", answers={200: (None, "OpenAPI 3.1.")})
def show() -> Response:
    return jsonify(document(current_app._get_current_object()))  # type: ignore[attr-defined]  # noqa: SLF001 - Flask's way


@blueprint.get("/docs")
@describe("This document, for people", answers={200: (None, "A page.")}, media_types=("text/html",))
def page() -> str:
    return render_template_string(PAGE, document=document(current_app._get_current_object()))  # type: ignore[attr-defined]  # noqa: SLF001 - as above


@blueprint.get("/")
@describe("The docs page", answers={302: (None, "To /docs.")})
def index() -> Redirect:
    return redirect("/docs")


@cache
def document(app: Flask) -> dict[str, Any]:
    described = list(routes(app))
    shapes: set[type[BaseModel]] = {ErrorEnvelope}
    for _, _, _, route in described:
        shapes |= {shape for shape, _ in route.answers.values() if shape}
        shapes |= {shape for shape in (route.body, route.form, route.query) if shape}
    ordered = sorted(shapes, key=lambda shape: shape.__name__)
    _, definitions = models_json_schema(
        [(shape, "validation") for shape in ordered], ref_template="#/components/schemas/{model}"
    )
    schemas = _with_short_names(definitions["$defs"])
    paths: dict[str, Any] = {}
    for path, method, endpoint, route in described:
        paths.setdefault(path, {})[method.lower()] = _operation(path, endpoint, route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Longhaul",
            "version": "1",
            "description": "Model work that outlives an HTTP request: submit, follow, resume, cancel.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _with_short_names(schemas: dict[str, Any]) -> dict[str, Any]:
    """Shapes of the same name, which pydantic tells apart by module, by their surface: `ChatTool`."""

    def short(found: re.Match[str]) -> str:
        *folders, shape = found[0].split("__")
        surface = next(folder for folder in folders if folder not in {"app", "openai"})
        return f"{surface.capitalize()}{shape}"

    named: dict[str, Any] = json.loads(re.sub(r"\bapp(?:__[a-z_]+?)+__[A-Z]\w*", short, json.dumps(schemas)))
    return named


def routes(app: Flask) -> list[tuple[str, str, str, Description]]:
    """(path, method, endpoint, description) of every route. Raises `AttributeError` for an undescribed one."""
    found = []
    for rule in app.url_map.iter_rules():
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)
        view = app.view_functions[rule.endpoint]
        described: Description = getattr(view, ATTRIBUTE)
        methods = set(METHODS) & set(rule.methods or {"GET"})
        found += [(path, method, rule.endpoint, described) for method in methods]
    return sorted(found, key=lambda route: (route[0], route[1]))


def _operation(path: str, endpoint: str, route: Description, schemas: dict[str, Any]) -> dict[str, Any]:
    group = endpoint.split(".", maxsplit=1)[0]
    operation: dict[str, Any] = {
        "operationId": endpoint.replace(".", "_"),
        "summary": route.summary,
        "tags": [group],
        "parameters": _parameters(path, route, schemas),
        "responses": {str(status): _answer(route, *answer) for status, answer in route.answers.items()},
    }
    for status in route.errors:
        operation["responses"][str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {"application/json": {"schema": _reference(ErrorEnvelope)}},
        }
    for media, shape in (("application/json", route.body), ("multipart/form-data", route.form)):
        if shape:
            operation["requestBody"] = {"required": True, "content": {media: {"schema": _reference(shape)}}}
    if group not in _OPEN:
        operation["security"] = [{"key": []}]
    return operation


def _parameters(path: str, route: Description, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]
    if route.query:
        for name, schema in schemas[route.query.__name__]["properties"].items():
            found.append({"name": name, "in": "query", "required": False, "schema": schema})
    for name, meaning in route.headers:
        found.append({"name": name, "in": "header", "description": meaning, "schema": {"type": "string"}})
    return found


def _answer(route: Description, shape: type[BaseModel] | None, meaning: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": meaning}
    if shape:
        answer["content"] = {
            media: {"schema": _reference(shape) if media == "application/json" else {"type": "string"}}
            for media in route.media_types
        }
    return answer


def _reference(shape: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{shape.__name__}"}
