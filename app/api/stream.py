"""`WS /v1/jobs/{id}/stream`: the events of a job as JSON text messages, from a cursor to the terminal one.

Callers are checked before the handshake, so a refusal is an ordinary HTTP answer: 401 (key or ticket), 403
(origin), 404 (job), 503 (too many followers, or this server stops). Close codes: 1000 after the terminal
event, 1009 for a message beyond 16 KB, 1012 when this server stops (connect again with the last `seq`), 4401
when the key is revoked, 4404 when the job is deleted.
"""

from collections.abc import Iterator
from typing import Final

import flask_sock
from flask import Response, g, request
from pydantic import BaseModel, Field
from simple_websocket import ConnectionError as HandshakeFailed
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import ProtocolError

from app.api import draining, following, notices, sockets, tickets
from app.api.auth import account_id, key_hash, public, require_key
from app.api.bodies import parse
from app.api.describe import describe
from app.api.errors import KeyMissing, envelope
from app.api.sockets import TICKET_PROTOCOL, FollowerSocket
from app.db import transaction
from app.jobs.errors import JobNotFound
from app.jobs.queries import get_job
from app.streams.frames import Frame

KEY_REVOKED: Final = 4401
JOB_DELETED: Final = 4404

# flask-sock takes its server class from its own module.
flask_sock.Server = sockets.accept
sock: Final = flask_sock.Sock()

# Public to Flask: `_admit` takes a key or a ticket.
blueprint = public("stream")


class StreamQuery(BaseModel):
    after: following.Cursor = 0
    ticket: str | None = Field(None, description="In place of a key: see `POST /v1/stream-tickets`.")


@blueprint.before_request
def _admit() -> None:
    job_id = (request.view_args or {})["job_id"]
    admit(job_id)
    with transaction() as session:
        get_job(session, account_id(), job_id)
    following.require_place()


def admit(subject: str) -> None:
    """Let the client of a handshake in, by its key or by a ticket for what it wants to follow; `g.after` is its
    cursor then. Raises `ApiError`.
    """
    query = parse(StreamQuery, request.args.to_dict())
    ticket = _ticket_protocol() or query.ticket
    sockets.check_origin(has_key=ticket is None)
    if ticket is None:
        require_key()
    else:
        tickets.redeem(ticket, subject)
    g.after = query.after


@blueprint.errorhandler(ProtocolError)
@blueprint.errorhandler(HandshakeFailed)
def refuse_handshake(error: Exception) -> Response:
    return envelope(400, f"The WebSocket handshake is not valid: {error}.", "invalid_handshake")


def _ticket_protocol() -> str | None:
    for protocol in request.headers.get("Sec-WebSocket-Protocol", "").split(","):
        if protocol.strip().startswith(TICKET_PROTOCOL):
            return protocol.strip().removeprefix(TICKET_PROTOCOL)
    return None


@sock.route("/v1/jobs/<job_id>/stream", bp=blueprint)
@describe(
    "Follow a job over a WebSocket",
    query=StreamQuery,
    headers=(("Sec-WebSocket-Protocol", "`longhaul.ticket.TICKET`, as `?ticket=`."),),
    answers={101: (None, "Each event is one JSON text message." + notices.MEANING)},
    errors=(400, 401, 403, 404, 503),
)
def follow(ws: FollowerSocket, job_id: str) -> None:
    try:
        pump(ws, following.batches(job_id, g.after, key_hash()))
    except JobNotFound:
        ws.close(JOB_DELETED, "The job was deleted.")


def pump(ws: FollowerSocket, lists: Iterator[list[Frame]]) -> None:
    """Send until there is nothing more to send, and close. Raises what `lists` does but for a revoked key."""
    ws.close(*_send(ws, lists))


def _send(ws: FollowerSocket, lists: Iterator[list[Frame]]) -> tuple[int, str | None]:
    """The close code and why."""
    try:
        for frames in lists:
            if frames:
                ws.send_texts([frame.body for frame in frames])
            del frames
            ws.look()
    except KeyMissing:
        return KEY_REVOKED, "The API key was revoked."
    if draining.has_begun():
        return CloseReason.SERVICE_RESTART, "This server stops; connect again."
    return CloseReason.NORMAL_CLOSURE, None
