"""Secrets that messages are signed with: made, found, and rotated so that the last one holds for a while beside
its successor. Functions take the caller's session and never commit.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import Final

from sqlalchemy import ColumnElement, func, or_, select, update
from sqlalchemy.orm import Session

from app.accounts.tables import Account
from app.ids import new_id
from app.webhooks import signing
from app.webhooks.errors import SecretMissing
from app.webhooks.tables import Endpoint, Origin, Scheme, Secret

OVERLAP_SECONDS: Final = 86_400
MAX_OVERLAP_SECONDS: Final = 30 * 86_400


def issue(session: Session, account_id: str, endpoint_id: str | None, scheme: Scheme = Scheme.HMAC) -> Secret:
    """A new secret of an endpoint or, without one, of the account."""
    secret = Secret(
        id=new_id("whs"),
        account_id=account_id,
        endpoint_id=endpoint_id,
        scheme=scheme,
        secret=signing.new_secret(scheme),
    )
    session.add(secret)
    session.flush()
    session.refresh(secret)
    return secret


def rotate(
    session: Session, account_id: str, endpoint_id: str | None, scheme: Scheme | None, overlap_seconds: int
) -> Secret:
    """A new secret, of the scheme of the last unless one is given; those before it hold for `overlap_seconds`
    more, and never longer than they would have.
    """
    # One at a time in an account: of two rotations, neither may leave the other's secret without an end.
    session.execute(select(Account.id).where(Account.id == account_id).with_for_update(key_share=True))
    earlier = live(session, account_id, endpoint_id)
    ends_at = func.now() + timedelta(seconds=overlap_seconds)
    session.execute(
        update(Secret)
        .where(Secret.id.in_([secret.id for secret in earlier]))
        .values(expires_at=func.least(Secret.expires_at, ends_at))
    )
    usual = earlier[0].scheme if earlier else Scheme.HMAC
    return issue(session, account_id, endpoint_id, scheme or usual)


def live(session: Session, account_id: str, endpoint_id: str | None) -> list[Secret]:
    """Those that hold, newest first."""
    statement = select(Secret).where(_owned(account_id, endpoint_id), _holds())
    return list(session.scalars(statement.order_by(Secret.id.desc())))


def live_by_endpoint(session: Session, endpoint_ids: Collection[str]) -> dict[str, list[Secret]]:
    """Those that hold of each endpoint, newest first."""
    statement = select(Secret).where(Secret.endpoint_id.in_(endpoint_ids), _holds())
    found: dict[str, list[Secret]] = {}
    for secret in session.scalars(statement.order_by(Secret.id.desc())):
        found.setdefault(secret.endpoint_id or "", []).append(secret)
    return found


def signing_secrets(session: Session, endpoint: Endpoint) -> list[str]:
    """What a message to `endpoint` is signed with: its own secrets, or the account's for a `webhook_url`."""
    owner = endpoint.id if endpoint.origin is Origin.REGISTERED else None
    return [secret.secret for secret in live(session, endpoint.account_id, owner)]


def require_account_secret(session: Session, account_id: str) -> None:
    """Raises `SecretMissing` where nothing could sign what goes to a `webhook_url`."""
    found = select(Secret.id).where(_owned(account_id, None), _holds()).limit(1)
    if session.scalar(found) is None:
        raise SecretMissing


def _owned(account_id: str, endpoint_id: str | None) -> ColumnElement[bool]:
    return (Secret.account_id == account_id) & (Secret.endpoint_id == endpoint_id)


def _holds() -> ColumnElement[bool]:
    return or_(Secret.expires_at.is_(None), Secret.expires_at > func.now())
