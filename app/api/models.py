"""`/v1/models`: what can be asked for, in OpenAI's shape, and who serves it now."""

from typing import Any, Literal

from flask import Response, jsonify
from pydantic import BaseModel, Field

from app.api import serving
from app.api.auth import protected
from app.api.describe import describe
from app.jobs.errors import ModelNotFound
from config.catalogue import ModelSpec, catalogue
from config.queues import Tier

blueprint = protected("models")


class ModelView(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    description: str
    context_tokens: int
    tiers: list[Tier]
    workers: int = Field(description="How many workers serve it now.")
    slots: int = Field(description="How many jobs they run at once.")


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelView]


@blueprint.get("/v1/models")
@describe("List models", answers={200: (ModelList, "Every model of the catalogue.")}, errors=(401,))
def index() -> Response:
    return jsonify(object="list", data=[_view(spec) for spec in catalogue().values()])


@blueprint.get("/v1/models/<path:name>")
@describe("Show a model", answers={200: (ModelView, "The model.")}, errors=(401, 404))
def show(name: str) -> Response:
    if name not in catalogue():
        raise ModelNotFound(name, list(catalogue()))
    return jsonify(_view(catalogue()[name]))


def _view(spec: ModelSpec) -> dict[str, Any]:
    workers = serving.workers_of(spec.name)
    return {
        "id": spec.name,
        "object": "model",
        "created": 0,
        "owned_by": "longhaul",
        "description": spec.description,
        "context_tokens": spec.context_tokens,
        "tiers": list(Tier),
        "workers": len(workers),
        "slots": sum(worker.slots for worker in workers),
    }
