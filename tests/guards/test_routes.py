"""Every route chose who may use it, and no secret of ours is open to all."""

import re

import pytest

from app.api import auth, create_app, health, openapi, stream
from app.api.batches import stream as batch_stream


@pytest.fixture(scope="module")
def app():
    import logging

    root = logging.getLogger()
    handlers = root.handlers
    made = create_app()
    root.handlers = handlers
    return made


# What anybody may call, with the reason in its module; the streams take a key or a ticket.
PUBLIC = {"health": health, "openapi": openapi, "stream": stream, "batch_stream": batch_stream}


def test_every_blueprint_needs_a_key_or_is_known_to_be_public(app):
    needs_key = {
        name
        for name, blueprint in app.blueprints.items()
        if auth.require_key in blueprint.before_request_funcs.get(None, [])
    }
    assert set(app.blueprints) - needs_key == set(PUBLIC)


@pytest.mark.parametrize("module", [stream, batch_stream])
def test_a_stream_is_admitted_before_the_handshake(app, module):
    assert module._admit in app.blueprints[module.blueprint.name].before_request_funcs[None]


def test_no_route_is_outside_of_a_blueprint(app):
    assert all("." in rule.endpoint for rule in app.url_map.iter_rules())


def test_without_a_key_every_other_route_answers_401(app):
    caller = app.test_client()
    asked = 0
    for rule in app.url_map.iter_rules():
        if rule.endpoint.split(".")[0] in PUBLIC:
            continue
        path = re.sub("<[^>]+>", "x", rule.rule)
        for method in rule.methods - {"HEAD", "OPTIONS"}:
            assert caller.open(path, method=method).status_code == 401, (method, path)
            asked += 1
    assert asked >= 20
