"""The Celery app. Its one task runs the job that a message names; retries, results, time limits, revokes and
events stay off, since Postgres decides what runs (`app.jobs.lifecycle`). Started without flags:
`celery -A workers.celery worker -P threads`.
"""

import logging
from typing import Any

import structlog
from celery import Celery, signals
from kombu import Queue

from app import tables  # noqa: F401 - a foreign key resolves only where its table is known
from config.catalogue import catalogue
from config.logging import configure_logging
from config.queues import RUN_JOB, queues_of
from config.settings import settings
from workers.engine import EngineStartFailed
from workers.executor import run_job
from workers.process import WorkerProcess, worker_id

log = structlog.get_logger(__name__)

WORKER_ID = worker_id()

app = Celery("longhaul", broker=settings().redis_url)
app.conf.update(
    task_queues=[Queue(name) for name in queues_of(WORKER_ID)],
    # Twice the slots: one that runs, and one that arrives while the other, preempted, is being put back.
    worker_concurrency=2 * (settings().slots or catalogue()[settings().model].slots),
    worker_pool="threads",
    # Late acks: a message that a lost worker held comes back; the claim makes a double one harmless.
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    task_ignore_result=True,
    worker_send_task_events=False,
    worker_enable_remote_control=False,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={
        "queue_order_strategy": "sorted",
        "socket_timeout": 30,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 10,
        "retry_on_timeout": True,
    },
)

_workers: list[WorkerProcess] = []


def current_worker() -> WorkerProcess:
    """The worker that this process is, once it has booted."""
    return _workers[0]


@app.task(name=RUN_JOB)
def run(job_id: str) -> None:
    run_job(current_worker(), job_id)


@signals.setup_logging.connect
def _configure_logging(**_: Any) -> None:
    configure_logging()
    # A line for each message received and handled says nothing that the job's own events do not.
    for chatty in ("celery.worker.strategy", "celery.app.trace"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


@signals.worker_init.connect
def _boot(**_: Any) -> None:
    """Before the first message is taken."""
    worker = WorkerProcess(WORKER_ID)
    try:
        worker.boot()
    except EngineStartFailed as error:
        log.critical("engine.start_failed", reason=str(error))
        raise SystemExit(1) from error
    _workers.append(worker)


@signals.worker_shutting_down.connect
def _drain(**_: Any) -> None:
    """SIGTERM. Celery takes no more messages and waits for the running tasks."""
    for worker in _workers:
        worker.begin_draining()


@signals.worker_shutdown.connect
def _shut_down(**_: Any) -> None:
    for worker in _workers:
        worker.shut_down()
