"""`WS /v1/batches/{id}/stream`: the events of a batch as JSON text messages, from a cursor to the terminal one.

Callers are checked before the handshake, as for a job's stream, and the close codes are the same.
"""

from typing import Final

import flask_sock
from flask import g, request
from simple_websocket import ConnectionError as HandshakeFailed
from wsproto.utilities import ProtocolError

from app.api import following, stream
from app.api.auth import account_id, key_hash, public
from app.api.batches import events
from app.api.describe import describe
from app.api.sockets import FollowerSocket
from app.api.stream import StreamQuery
from app.batches.queries import get_batch
from app.db import transaction

sock: Final = flask_sock.Sock()

# Public to Flask: `_admit` takes a key or a ticket.
blueprint = public("batch_stream")
blueprint.register_error_handler(ProtocolError, stream.refuse_handshake)
blueprint.register_error_handler(HandshakeFailed, stream.refuse_handshake)


@blueprint.before_request
def _admit() -> None:
    batch_id = (request.view_args or {})["batch_id"]
    stream.admit(batch_id)
    with transaction() as session:
        get_batch(session, account_id(), batch_id)
    following.require_place()


@sock.route("/v1/batches/<batch_id>/stream", bp=blueprint)  # type: ignore[untyped-decorator]  # flask-sock ships no types
@describe(
    "Follow a batch over a WebSocket",
    query=StreamQuery,
    headers=(("Sec-WebSocket-Protocol", "`longhaul.ticket.TICKET`, as `?ticket=`."),),
    answers={101: (None, "Each event is one JSON text message.")},
    errors=(400, 401, 403, 404, 503),
)
def follow(ws: FollowerSocket, batch_id: str) -> None:
    stream.pump(ws, events.follow(batch_id, g.after, key_hash()))
