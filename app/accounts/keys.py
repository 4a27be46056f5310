"""Issue, verify and revoke API keys."""

import hashlib
import secrets

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from app.accounts.tables import Account, ApiKey
from app.ids import is_id, new_id

PREFIX = "lh-"


def find_account(session: Session, name: str) -> Account | None:
    return session.scalar(select(Account).where(Account.name == name))


def create_account(session: Session, name: str) -> Account:
    """Raises `sqlalchemy.exc.IntegrityError` if the name is taken."""
    account = Account(id=new_id("acct"), name=name)
    session.add(account)
    session.flush()
    return account


def create_key(session: Session, account: Account, name: str) -> tuple[ApiKey, str]:
    """The stored key and its secret, which is never to be had again."""
    secret = PREFIX + secrets.token_urlsafe(32)
    key = ApiKey(
        id=new_id("key"), account_id=account.id, name=name, hint=secret[-4:], secret_hash=hash_secret(secret)
    )
    session.add(key)
    session.flush()
    return key, secret


def hash_secret(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()


def find_by_secret_hash(session: Session, secret_hash: bytes) -> tuple[Account, ApiKey] | None:
    """A key that is not revoked, and its account."""
    row = session.execute(
        select(Account, ApiKey)
        .join(ApiKey, ApiKey.account_id == Account.id)
        .where(ApiKey.secret_hash == secret_hash, ApiKey.revoked_at.is_(None))
    ).one_or_none()
    return None if row is None else (row[0], row[1])


def find_key(session: Session, key_id: str) -> ApiKey | None:
    return session.get(ApiKey, key_id) if is_id("key", key_id) else None


def list_accounts(session: Session) -> list[Account]:
    """Every account, by name."""
    return list(session.scalars(select(Account).order_by(Account.name)))


def list_keys(session: Session) -> list[tuple[ApiKey, str]]:
    """Every key with its account's name, oldest first."""
    rows = session.execute(
        select(ApiKey, Account.name).join(Account, Account.id == ApiKey.account_id).order_by(ApiKey.id)
    )
    return [(key, name) for key, name in rows]


def revoke_key(session: Session, key_id: str) -> bool:
    """Whether there was such a key; revoking twice keeps the first time."""
    if not is_id("key", key_id):
        return False
    revoked_at = func.coalesce(ApiKey.revoked_at, func.now())
    statement = update(ApiKey).where(ApiKey.id == key_id).values(revoked_at=revoked_at).returning(ApiKey.id)
    return session.scalar(statement) is not None
