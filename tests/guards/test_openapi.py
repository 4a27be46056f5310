"""The OpenAPI document says what the code does: routes, statuses, tiers, event types, limits."""

import logging
import re
from html.parser import HTMLParser

import pytest
from jsonschema import Draft202012Validator

from app.api import create_app
from app.api.errors import STATUS_BY_ERROR
from app.api.events import EVENT_TYPES
from app.api.openapi import document
from app.jobs import errors
from app.jobs.log import REWIND
from app.jobs.states import TERMINAL_EVENT_TYPES, Status
from app.streams.frames import DELTA
from config.queues import Tier


@pytest.fixture(scope="module")
def app():
    root = logging.getLogger()
    handlers = root.handlers
    made = create_app()
    root.handlers = handlers
    return made


@pytest.fixture(scope="module")
def spec(app):
    return document(app)


def operations(spec):
    for path, methods in spec["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def references(value):
    if isinstance(value, dict):
        yield from ([value["$ref"]] if isinstance(value.get("$ref"), str) else [])
        value = list(value.values())
    if isinstance(value, list):
        for child in value:
            yield from references(child)


def test_every_route_is_in_the_document(app, spec):
    routed = {
        (re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule), method.lower())
        for rule in app.url_map.iter_rules()
        for method in rule.methods - {"HEAD", "OPTIONS"}
    }
    assert {(path, method) for path, method, _ in operations(spec)} == routed


def test_every_path_parameter_is_declared_and_every_operation_has_its_own_id(spec):
    ids = []
    for path, _, operation in operations(spec):
        declared = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
        assert declared == set(re.findall(r"{(\w+)}", path))
        assert operation["responses"]
        ids.append(operation["operationId"])
    assert len(ids) == len(set(ids))


def test_every_reference_leads_somewhere_and_every_shape_is_a_schema(spec):
    schemas = spec["components"]["schemas"]
    for reference in references(spec):
        assert reference.removeprefix("#/components/schemas/") in schemas
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)


def test_statuses_tiers_and_event_types_are_those_of_the_code(spec):
    schemas = spec["components"]["schemas"]
    assert set(schemas["Status"]["enum"]) == set(Status)
    assert set(schemas["Tier"]["enum"]) == set(Tier)
    assert set(schemas["Event"]["properties"]["type"]["enum"]) == set(EVENT_TYPES)
    assert set(EVENT_TYPES) == {status.event_type for status in Status} | {DELTA, REWIND}
    assert set(EVENT_TYPES) > TERMINAL_EVENT_TYPES


def test_every_protected_operation_needs_a_key_and_can_answer_401(spec):
    for path, _, operation in operations(spec):
        if path.startswith("/v1/"):
            assert operation["security"] == [{"key": []}]
            assert "401" in operation["responses"]


def test_every_domain_error_has_a_status():
    def below(kind):
        for child in kind.__subclasses__():
            yield child
            yield from below(child)

    assert set(below(errors.JobError)) == set(STATUS_BY_ERROR)


def test_the_document_is_served(app, spec):
    answer = app.test_client().get("/openapi.json")
    assert answer.json["openapi"].startswith("3.1")
    assert answer.json == spec


def test_the_docs_page_works_without_a_network_and_shows_every_operation(app, spec):
    page = app.test_client().get("/docs")
    assert page.status_code == 200
    assert app.test_client().get("/").headers["Location"] == "/docs"

    class Links(HTMLParser):
        found = ()

        def handle_starttag(self, tag, attrs):
            self.found += tuple(value for name, value in attrs if name in {"src", "href"})

    links = Links()
    links.feed(page.text)
    assert not [link for link in links.found if "//" in link]
    for path in spec["paths"]:
        assert path in page.text


def test_no_name_of_a_shape_tells_where_our_code_lies(spec):
    assert not [name for name in spec["components"]["schemas"] if "__" in name]
    assert not [reference for reference in references(spec) if "__" in reference]


def test_an_upload_is_described_as_the_form_that_it_is(spec):
    content = spec["paths"]["/v1/files"]["post"]["requestBody"]["content"]
    form = spec["components"]["schemas"][content["multipart/form-data"]["schema"]["$ref"].rsplit("/", 1)[1]]
    assert form["properties"]["file"]["format"] == "binary"
    assert set(form["required"]) == {"file", "purpose"}
    assert "expires_after[seconds]" in form["properties"]
