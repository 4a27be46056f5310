"""The verbs of files: keep, find, list, drop. Functions take the caller's session and never commit; bytes are
stored between two transactions (`begin`, then `storage().put`, then `keep`), so that none waits for them.
"""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.accounts.tables import Account
from app.files.errors import FileNotFound, StorageFull
from app.files.storage import storage
from app.files.tables import Blob, Purpose, StoredFile
from app.ids import is_id, new_id
from config.settings import settings


@dataclass(frozen=True, slots=True)
class Draft:
    """A file as it is to be kept; its content is stored."""

    account_id: str
    digest: str
    bytes: int
    filename: str
    purpose: Purpose
    expires_after_seconds: float | None = None


def begin(session: Session, digest: str, size: int) -> None:
    """Say that a content is about to be stored. Until a file has it, it stays for a while."""
    touched = insert(Blob).values(digest=digest, bytes=size)
    session.execute(
        touched.on_conflict_do_update(index_elements=[Blob.digest], set_={"touched_at": func.now()})
    )


def keep(session: Session, draft: Draft) -> StoredFile:
    """Raises `StorageFull` where the account has as much as it may: of what it uploads, not of its results."""
    if draft.purpose is not Purpose.BATCH_OUTPUT:
        _require_room(session, draft)
    file = StoredFile(
        id=new_id("file"),
        account_id=draft.account_id,
        digest=draft.digest,
        bytes=draft.bytes,
        filename=draft.filename,
        purpose=draft.purpose,
    )
    if draft.expires_after_seconds is not None:
        file.expires_at = func.now() + timedelta(seconds=draft.expires_after_seconds)
    session.add(file)
    session.flush()
    session.refresh(file)
    return file


def _require_room(session: Session, draft: Draft) -> None:
    # One at a time in an account: two uploads must not both find the last room.
    session.execute(select(Account.id).where(Account.id == draft.account_id).with_for_update(key_share=True))
    held = select(func.count(), func.coalesce(func.sum(StoredFile.bytes), 0))
    uploaded = (StoredFile.account_id == draft.account_id, StoredFile.purpose != Purpose.BATCH_OUTPUT)
    count, size = session.execute(held.where(*uploaded)).one()
    limits = settings()
    if limits.max_files and count >= limits.max_files:
        raise StorageFull("files", limits.max_files)
    if limits.max_file_bytes_kept and size + draft.bytes > limits.max_file_bytes_kept:
        raise StorageFull("bytes of files", limits.max_file_bytes_kept)


def get_file(session: Session, account_id: str, file_id: str) -> StoredFile:
    """Raises `FileNotFound`, also for another account's and for one that has expired."""
    file = session.get(StoredFile, file_id) if is_id("file", file_id) else None
    if file is None or file.account_id != account_id or _has_expired(session, file):
        raise FileNotFound(file_id)
    return file


def _has_expired(session: Session, file: StoredFile) -> bool:
    return file.expires_at is not None and bool(session.scalar(select(func.now() >= file.expires_at)))


def list_files(
    session: Session,
    account_id: str,
    *,
    purpose: Purpose | None,
    after: str | None,
    limit: int,
    newest_first: bool,
) -> list[StoredFile]:
    """One page; `after` is the id of the last file of the page before."""
    statement = select(StoredFile).where(StoredFile.account_id == account_id)
    statement = statement.where(StoredFile.expires_at.is_(None) | (StoredFile.expires_at > func.now()))
    if purpose is not None:
        statement = statement.where(StoredFile.purpose == purpose)
    if after is not None:
        statement = statement.where(StoredFile.id < after if newest_first else StoredFile.id > after)
    order = StoredFile.id.desc() if newest_first else StoredFile.id
    return list(session.scalars(statement.order_by(order).limit(limit)))


def drop(session: Session, account_id: str, file_id: str) -> None:
    """Raises `FileNotFound`."""
    session.delete(get_file(session, account_id, file_id))


def drop_expired(session: Session, limit: int) -> int:
    """Returns how many went."""
    expired = (
        select(StoredFile.id)
        .where(StoredFile.expires_at < func.now())
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    gone = session.execute(delete(StoredFile).where(StoredFile.id.in_(expired)).returning(StoredFile.id))
    return len(gone.all())


def drop_orphans(session: Session, limit: int) -> int:
    """Drop contents that no file has. Their bytes go before this transaction ends: an upload of the same
    content waits at `begin` for the row, and stores it anew.
    """
    grace = timedelta(seconds=settings().blob_grace_seconds)
    orphans = (
        select(Blob.digest)
        .where(
            Blob.touched_at < func.now() - grace,
            ~select(StoredFile.id).where(StoredFile.digest == Blob.digest).exists(),
        )
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    gone = session.scalars(delete(Blob).where(Blob.digest.in_(orphans)).returning(Blob.digest)).all()
    for digest in gone:
        storage().delete(digest)
    return len(gone)
