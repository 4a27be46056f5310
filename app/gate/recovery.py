"""What the gate knew and Redis lost, read again from Postgres: what active jobs reserved, and what was used in
the last minute. What it forgets are refusals and requests that came to nothing.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, case, func, or_, select
from sqlalchemy.orm import Session

from app import clock
from app.accounts.limits import limits_of
from app.accounts.tables import Account, ApiKey
from app.gate import admission
from app.ids import earliest_id
from app.jobs.states import Status
from app.jobs.tables import Job, Usage
from config.queues import Tier
from config.settings import settings

MINUTE: Final = timedelta(minutes=1)
_HAS_RATES: Final = Job.batch_id.is_(None)  # lines of a batch are free of them


def read_lost(session: Session) -> tuple[list[admission.Reservation], list[admission.Used]]:
    """What `admission.rebuild` takes."""
    return list(_reservations(session)), list(_used(session))


def _reservations(session: Session) -> Iterator[admission.Reservation]:
    """Of jobs that did not end yet, where their tokens are limited."""
    lasting_since = clock.now() - timedelta(seconds=settings().reservation_seconds)
    statement = (
        select(Job.id, Job.tier, Job.reserved_tokens, Account, ApiKey)
        .join(Account, Account.id == Job.account_id)
        .outerjoin(ApiKey, ApiKey.id == Job.key_id)
        .where(
            Job.status.in_([Status.QUEUED, Status.IN_PROGRESS]),
            _HAS_RATES,
            Job.id >= earliest_id("job", lasting_since),
            or_(_tokens_per_minute() > 0, ApiKey.tokens_per_minute > 0),
        )
    )
    for job_id, tier, tokens, account, key in session.execute(statement):
        key_id = key.id if key else None
        yield admission.Reservation(job_id, account.id, key_id, tier, tokens, limits_of(account, key, tier))


def _tokens_per_minute() -> ColumnElement[int]:
    """Of a job's account and tier, as `limits_of`: there may be a million batch jobs, whose tokens are free."""
    usual = settings()
    return case(
        (
            Job.tier == Tier.BATCH,
            func.coalesce(Account.batch_tokens_per_minute, usual.batch_tokens_per_minute),
        ),
        else_=func.coalesce(Account.tokens_per_minute, usual.tokens_per_minute),
    )


def _used(session: Session) -> Iterator[admission.Used]:
    tokens = (
        select(Usage.account_id, Usage.key_id, Usage.tier, func.sum(Usage.settled_tokens))
        .outerjoin(Job, Job.id == Usage.job_id)
        .where(Usage.is_final, Usage.settled_at > func.now() - MINUTE, _HAS_RATES)
        .group_by(Usage.account_id, Usage.key_id, Usage.tier)
    )
    requests = (
        select(Job.account_id, Job.key_id, Job.tier, func.count())
        .where(Job.id >= earliest_id("job", clock.now() - MINUTE), _HAS_RATES)
        .group_by(Job.account_id, Job.key_id, Job.tier)
    )
    return _joined(session, session.execute(tokens), session.execute(requests))


def _joined(session: Session, tokens: Iterable[Any], requests: Iterable[Any]) -> Iterator[admission.Used]:
    counts: dict[tuple[str, str | None, Any], list[int]] = {}
    for position, rows in enumerate((tokens, requests)):
        for account_id, key_id, tier, count in rows:
            counts.setdefault((account_id, key_id, tier), [0, 0])[position] = int(count or 0)
    for (account_id, key_id, tier), (used, asked) in counts.items():
        account = session.get(Account, account_id)
        key = session.get(ApiKey, key_id) if key_id else None
        if account is not None:
            yield admission.Used(account_id, key_id, tier, used, asked, limits_of(account, key, tier))
