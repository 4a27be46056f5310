"""How a message is signed (Standard Webhooks): over its id, the time of the attempt, and the bytes of its body,
with every secret that holds. Pure.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.webhooks.tables import Scheme

USER_AGENT: Final = "Longhaul/1.0"
SECRET_BYTES: Final = 32
PREFIX: Final = {Scheme.HMAC: "whsec_", Scheme.ED25519: "whsk_"}
PUBLIC_PREFIX: Final = "whpk_"


def new_secret(scheme: Scheme) -> str:
    """32 random bytes; for ed25519 they are the private key."""
    return PREFIX[scheme] + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def scheme_of(secret: str) -> Scheme:
    return Scheme.ED25519 if secret.startswith(PREFIX[Scheme.ED25519]) else Scheme.HMAC


def public_key(secret: str) -> str | None:
    """What receivers verify an ed25519 signature with; None for a shared secret."""
    if scheme_of(secret) is Scheme.HMAC:
        return None
    key = Ed25519PrivateKey.from_private_bytes(_bytes(secret)).public_key()
    return PUBLIC_PREFIX + base64.b64encode(key.public_bytes_raw()).decode()


def headers(message_id: str, body: bytes, secrets: Sequence[str], now: datetime) -> dict[str, str]:
    """Of one attempt. `secrets` are all that hold: a receiver changes to the next in its own time."""
    timestamp = str(int(now.timestamp()))
    signed = b".".join((message_id.encode(), timestamp.encode(), body))
    return {
        "content-type": "application/json",
        "user-agent": USER_AGENT,
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(sign(secret, signed) for secret in secrets),
    }


def sign(secret: str, signed: bytes) -> str:
    """`VERSION,BASE64`."""
    scheme = scheme_of(secret)
    if scheme is Scheme.HMAC:
        signature = hmac.digest(_bytes(secret), signed, hashlib.sha256)
    else:
        signature = Ed25519PrivateKey.from_private_bytes(_bytes(secret)).sign(signed)
    return f"{scheme},{base64.b64encode(signature).decode()}"


def _bytes(secret: str) -> bytes:
    return base64.b64decode(secret.partition("_")[2])
