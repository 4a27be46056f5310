"""OpenAI's own word on the shapes that leave us: its SDK's models always, its published schema where it lies
beside the repository.
"""

import json
from functools import cache
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

PUBLISHED = Path(__file__).parents[3].parent / "shared" / "data" / "openai-openapi.json"
EVENT = TypeAdapter(ResponseStreamEvent)

needs_schema = pytest.mark.skipif(not PUBLISHED.exists(), reason="OpenAI's published schema is not here")


@cache
def _published():
    return json.loads(PUBLISHED.read_text())


@cache
def validator(name):
    root = _published()
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": root["components"]})


@cache
def _schema_by_event():
    schemas = _published()["components"]["schemas"]
    names = [entry["$ref"].rpartition("/")[2] for entry in schemas["ResponseStreamEvent"]["anyOf"]]
    return {schemas[name]["properties"]["type"]["enum"][0]: name for name in names}


def check_event(event):
    """It is what the SDK declares, and what the schema says."""
    EVENT.validate_python(event, strict=False)
    if PUBLISHED.exists():
        validator(_schema_by_event()[event["type"]]).validate(event)


def check_response(body):
    Response.model_validate(body)
    if PUBLISHED.exists():
        validator("Response").validate(body)


def check(name, body):
    if PUBLISHED.exists():
        validator(name).validate(body)
