"""Tickets let a browser, which cannot set headers on a WebSocket, open one stream of one job once. A ticket
lives in Redis for a minute; only its hash is a key there.
"""

import hashlib
import secrets
from typing import Final

from flask import Response, jsonify
from pydantic import BaseModel

from app.api.auth import account_id, admit, key_hash, protected
from app.api.bodies import parse_body
from app.api.describe import describe
from app.api.errors import TicketInvalid
from app.db import transaction
from app.jobs.queries import get_job
from app.redis import client

blueprint = protected("tickets")

TICKET_SECONDS: Final = 60


class TicketRequest(BaseModel):
    job_id: str


class Ticket(BaseModel):
    ticket: str
    expires_in: int = TICKET_SECONDS


@blueprint.post("/v1/stream-tickets")
@describe(
    "Make a single-use ticket for a job's WebSocket",
    body=TicketRequest,
    answers={201: (Ticket, "Give it as `?ticket=` or as the subprotocol `longhaul.ticket.TICKET`.")},
    errors=(400, 401, 404, 503),
)
def create() -> tuple[Response, int]:
    job_id = parse_body(TicketRequest).job_id
    with transaction() as session:
        get_job(session, account_id(), job_id)
    ticket = secrets.token_urlsafe(24)
    client().set(_key(ticket), f"{key_hash().hex()} {job_id}", ex=TICKET_SECONDS)
    return jsonify(ticket=ticket, expires_in=TICKET_SECONDS), 201


def redeem(ticket: str, job_id: str) -> None:
    """Let this request act for the key that a ticket was made with; the ticket is used up. Raises
    `TicketInvalid`, and `KeyMissing` if the key was revoked since.
    """
    bound = client().getdel(_key(ticket))
    secret_hash, _, bound_job_id = bound.decode().partition(" ") if isinstance(bound, bytes) else ("", "", "")
    if bound_job_id != job_id:
        raise TicketInvalid("This ticket was used, has expired, or is for another job.")
    admit(bytes.fromhex(secret_hash))


def _key(ticket: str) -> str:
    return f"lh:ticket:{hashlib.sha256(ticket.encode()).hexdigest()}"
