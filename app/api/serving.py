"""Who serves which model now, how the lines stand and where a job does, asked of Postgres: what is the same for
all at most once a second.
"""

from cachetools import TTLCache, cached

from app.db import transaction
from app.jobs.queries import live_workers
from app.jobs.tables import Job, Worker
from app.line import lines, places
from app.line.estimates import Ahead, Place
from app.line.measures import Measure
from config.queues import Tier
from config.settings import settings


def workers_of(model: str) -> list[Worker]:
    """Those that take jobs: one that stops takes none."""
    return [worker for worker in _live() if worker.model == model and not worker.draining]


def line_of(model: str, tier: Tier) -> Measure:
    with transaction() as session:
        return lines.line_of(lines.recent_lines(session), model, tier)


def place_of(job: Job, ahead: Ahead | None = None) -> Place | None:
    """None for a job that does not wait; see `places.place_of`."""
    with transaction() as session:
        return places.place_of(session, job, ahead)


@cached(TTLCache(1, ttl=1.0))
def _live() -> list[Worker]:
    with transaction() as session:
        return live_workers(session, within_seconds=settings().lease_seconds)
