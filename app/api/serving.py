"""Which workers serve which model now, asked of Postgres at most once a second."""

from cachetools import TTLCache, cached

from app.db import transaction
from app.jobs.queries import live_workers
from app.jobs.tables import Worker
from config.settings import settings


def workers_of(model: str) -> list[Worker]:
    """Those that take jobs: one that stops takes none."""
    return [worker for worker in _live() if worker.model == model and not worker.draining]


@cached(TTLCache(1, ttl=1.0))
def _live() -> list[Worker]:
    with transaction() as session:
        return live_workers(session, within_seconds=settings().lease_seconds)
