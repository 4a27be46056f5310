"""What the line is compared with: two plain Celery queues, interactive first, on the same worker with the same
engine and executor. As many jobs run as the engine has slots, none yields, and Celery alone decides who goes
next. `celery -A bench.plain:app worker` in place of `workers.celery:app`; no dispatcher runs beside it.
"""

from collections.abc import Iterable
from typing import Final

from celery.app.base import Celery
from kombu import Connection, Queue

from config.catalogue import catalogue
from config.queues import Tier
from config.settings import settings
from workers.celery import app, current_worker
from workers.executor import claim, generate, settle

__all__ = ["app", "ring_all"]

RUN_PLAIN: Final = "bench.run_plain"
QUEUES: Final = {Tier.INTERACTIVE: "plain0.interactive", Tier.BATCH: "plain1.batch"}


def _make_plain(worker_app: Celery) -> None:
    worker_app.conf.task_queues = [Queue(name) for name in QUEUES.values()]
    worker_app.conf.worker_concurrency = settings().slots or catalogue()[settings().model].slots


_make_plain(app)


@app.task(name=RUN_PLAIN)  # type: ignore[untyped-decorator]
def run(job_id: str) -> None:
    """The executor's five steps, without a place to reserve first."""
    worker = current_worker()
    job = claim(worker, job_id, tuple(Tier))
    if job is not None:
        with worker.holding(job):
            settle(job, generate(worker, job))


def ring_all(job_ids: Iterable[str], tier: Tier) -> None:
    """Queue a message for each, all at once."""
    with Connection(settings().redis_url) as connection:
        for job_id in job_ids:
            app.send_task(RUN_PLAIN, args=(job_id,), queue=QUEUES[tier], connection=connection)
