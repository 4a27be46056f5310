"""Tickets let a browser, which cannot set headers on a WebSocket, open one stream of one job or batch once. A
ticket lives in Redis for a minute; only its hash is a key there.
"""

import hashlib
import secrets
from typing import Final

from flask import Response, jsonify
from pydantic import BaseModel

from app.api.auth import account_id, admit, key_hash, protected
from app.api.bodies import parse_body
from app.api.describe import describe
from app.api.errors import BodyInvalid, TicketInvalid
from app.batches.queries import get_batch
from app.db import transaction
from app.jobs.queries import get_job
from app.redis import client

blueprint = protected("tickets")

TICKET_SECONDS: Final = 60


class TicketRequest(BaseModel):
    """What is to be followed: one of the two."""

    job_id: str | None = None
    batch_id: str | None = None


class Ticket(BaseModel):
    ticket: str
    expires_in: int = TICKET_SECONDS


@blueprint.post("/v1/stream-tickets")
@describe(
    "Make a single-use ticket for the WebSocket of a job or a batch",
    body=TicketRequest,
    answers={201: (Ticket, "Give it as `?ticket=` or as the subprotocol `longhaul.ticket.TICKET`.")},
    errors=(400, 401, 404, 503),
)
def create() -> tuple[Response, int]:
    subject = _subject(parse_body(TicketRequest))
    ticket = secrets.token_urlsafe(24)
    client().set(_key(ticket), f"{key_hash().hex()} {subject}", ex=TICKET_SECONDS)
    return jsonify(ticket=ticket, expires_in=TICKET_SECONDS), 201


def _subject(wanted: TicketRequest) -> str:
    """The id of what the caller may follow. Raises `BodyInvalid`, `JobNotFound`, `BatchNotFound`."""
    with transaction() as session:
        match wanted.job_id, wanted.batch_id:
            case str(job_id), None:
                return get_job(session, account_id(), job_id).id
            case None, str(batch_id):
                return get_batch(session, account_id(), batch_id).id
    raise BodyInvalid("Give one of 'job_id' and 'batch_id'.", "job_id")


def redeem(ticket: str, subject: str) -> None:
    """Let this request act for the key that a ticket was made with; the ticket is used up. Raises
    `TicketInvalid`, and `KeyMissing` if the key was revoked since.
    """
    bound = client().getdel(_key(ticket))
    secret_hash, _, bound_subject = bound.decode().partition(" ") if isinstance(bound, bytes) else ("", "", "")
    if bound_subject != subject:
        raise TicketInvalid("This ticket was used, has expired, or is for something else.")
    admit(bytes.fromhex(secret_hash))


def _key(ticket: str) -> str:
    return f"lh:ticket:{hashlib.sha256(ticket.encode()).hexdigest()}"
