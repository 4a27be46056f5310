"""The HTTP and WebSocket edge, and the only Flask code: parse, authorise, call one verb, shape the answer."""

from flask import Flask

from app.api import (
    errors,
    events,
    files,
    health,
    jobs,
    models,
    openapi,
    queues,
    request_ids,
    stream,
    tickets,
)
from app.api.batches import batches, messages
from app.api.batches import events as batch_events
from app.api.batches import lines as batch_lines
from app.api.batches import stream as batch_stream
from app.api.calls import chat, completions, responses, responses_socket, stored_responses, webhook_endpoints
from app.api.webhooks import deliveries, endpoints
from config.logging import configure_logging
from config.settings import settings

FEATURES = (
    *(jobs, events, stream, tickets),
    *(responses, responses_socket, stored_responses, chat, completions, models),
    *(files, batches, batch_lines, batch_events, batch_stream, messages),
    *(endpoints, deliveries, webhook_endpoints),
    *(queues, health, openapi),
)


def create_app() -> Flask:
    """The WSGI application."""
    configure_logging()
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = settings().max_body_bytes
    app.url_map.strict_slashes = False
    app.json.sort_keys = False  # type: ignore[attr-defined]  # of Flask's default provider
    request_ids.init_app(app)
    errors.init_app(app)
    for feature in FEATURES:
        app.register_blueprint(feature.blueprint)
    return app
