"""`WS /v1/jobs/{id}/stream`: the events of a job as JSON text messages, from a cursor to the terminal one.

Callers are checked before the handshake, so a refusal is an ordinary HTTP answer: 401 (key or ticket), 403
(origin), 404 (job), 503 (too many followers). Close codes: 1000 after the terminal event, 1008 if the job is
deleted meanwhile, 1009 for a message beyond 16 KB, 1012 when this server stops (connect again with the last
`seq`).
"""

from typing import Final

import flask_sock
from flask import g, request
from wsproto.frame_protocol import CloseReason

from app.api import draining, tickets
from app.api.auth import public, require_key
from app.api.bodies import parse
from app.api.describe import describe
from app.api.errors import OriginForbidden, TooManyFollowers
from app.api.events import TICK_SECONDS, EventsQuery
from app.api.sockets import TICKET_PROTOCOL, FollowerSocket
from app.db import transaction
from app.jobs.errors import JobNotFound
from app.jobs.queries import get_job
from app.streams import channel
from app.streams.hub import hub
from config.settings import settings

# flask-sock takes its server class from its own module.
flask_sock.Server = FollowerSocket
sock: Final = flask_sock.Sock()

# Public to Flask: `_admit` takes a key or a ticket.
blueprint = public("stream")


@blueprint.before_request
def _admit() -> None:
    job_id = (request.view_args or {})["job_id"]
    ticket = _ticket()
    _check_origin(has_key=ticket is None)
    if ticket is None:
        require_key()
    else:
        g.account_id = tickets.redeem(ticket, job_id)
    with transaction() as session:
        get_job(session, g.account_id, job_id)
    if hub().followers >= settings().max_followers:
        raise TooManyFollowers("This server follows as many streams as it may; try again or try another.")
    g.after = parse(EventsQuery, {"after": request.args.get("after", "0")}).after


def _ticket() -> str | None:
    for protocol in request.headers.get("Sec-WebSocket-Protocol", "").split(","):
        if protocol.strip().startswith(TICKET_PROTOCOL):
            return protocol.strip().removeprefix(TICKET_PROTOCOL)
    return request.args.get("ticket")


def _check_origin(*, has_key: bool) -> None:
    """Any page can open a WebSocket from a visitor's browser; only ours, and those we are told of, may."""
    origin = request.headers.get("Origin")
    if origin is None and has_key:
        return
    if origin not in {request.host_url.rstrip("/"), settings().base_url, *settings().allowed_origins}:
        raise OriginForbidden(f"Pages from '{origin}' may not open streams here.")


@sock.route("/v1/jobs/<job_id>/stream", bp=blueprint)
@describe(
    "Follow a job over a WebSocket",
    query=EventsQuery,
    headers=(("Sec-WebSocket-Protocol", "`longhaul.ticket.TICKET`, or `?ticket=`: in place of a key."),),
    answers={101: (None, "Each event is one JSON text message.")},
    errors=(400, 401, 403, 404, 503),
)
def follow(ws: FollowerSocket, job_id: str) -> None:
    ws.close(*_pump(ws, job_id, g.after))


def _pump(ws: FollowerSocket, job_id: str, after: int) -> tuple[int, str | None]:
    """Send until there is nothing more to send. The close code and why."""
    try:
        for batch in channel.follow(job_id, after, tick_seconds=TICK_SECONDS):
            if batch:
                ws.send_texts([frame.body for frame in batch])
            ws.look()
            if draining.has_begun():
                return CloseReason.SERVICE_RESTART, "This server stops; connect again."
    except JobNotFound:
        return CloseReason.POLICY_VIOLATION, "The job was deleted."
    return CloseReason.NORMAL_CLOSURE, None
