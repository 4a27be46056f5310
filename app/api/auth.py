"""Who is asking. Every blueprint is made here, as `protected` or `public`: there is no third kind, and no way
to forget.
"""

import threading
from typing import Final

from cachetools import TTLCache
from flask import Blueprint, g, request

from app.accounts.keys import find_by_secret_hash, hash_secret
from app.accounts.limits import Caller, caller_with
from app.api.errors import KeyMissing
from app.db import transaction
from config.settings import settings

# Callers by hash of a valid key: saves a round trip a request; a revoked key or a new limit takes seconds more.
_known: Final[TTLCache[bytes, Caller]] = TTLCache(10_000, settings().key_cache_seconds)
_known_lock: Final = threading.Lock()


def protected(name: str) -> Blueprint:
    """A blueprint whose every route needs an API key."""
    blueprint = Blueprint(name, __name__)
    blueprint.before_request(require_key)
    return blueprint


def public(name: str) -> Blueprint:
    """A blueprint that anybody may use, or that checks its callers otherwise, which its module must say."""
    return Blueprint(name, __name__)


def caller() -> Caller:
    """Who is asking, once `require_key` has run."""
    found: Caller = g.caller
    return found


def account_id() -> str:
    """The caller's account."""
    return caller().account_id


def key_hash() -> bytes:
    """The hash of the caller's key, for asking again later whether it is valid."""
    found: bytes = g.key_hash
    return found


def require_key() -> None:
    """Raises `KeyMissing` unless the request has a valid key, as clients of OpenAI or Anthropic send it."""
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    given = secret if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
    if not given.strip():
        raise KeyMissing("Give your API key in the header 'Authorization: Bearer KEY'.")
    admit(hash_secret(given.strip()))


def admit(secret_hash: bytes) -> None:
    """Let this request act for the account of a key. Raises `KeyMissing`."""
    g.caller = caller_of(secret_hash)
    g.key_hash = secret_hash


def account_of(secret_hash: bytes) -> str:
    """The account of a valid key. Raises `KeyMissing`."""
    return caller_of(secret_hash).account_id


def caller_of(secret_hash: bytes) -> Caller:
    """Who has a valid key. Raises `KeyMissing`."""
    with _known_lock:
        known = _known.get(secret_hash)
    if known is not None:
        return known
    with transaction() as session:
        found = find_by_secret_hash(session, secret_hash)
    if found is None:
        raise KeyMissing("This API key is not valid.")
    made = caller_with(*found)
    with _known_lock:
        _known[secret_hash] = made
    return made
