"""Ring for a job: put its id on the Celery queue of a worker that has room for it. The message is a doorbell,
nothing more: a lost one costs latency (the dispatcher places the job again), a double one finds no job to
claim. The only use of Celery in `app`.
"""

from functools import cache, lru_cache
from typing import Final

import structlog
from celery import Celery
from kombu import Exchange, Queue
from kombu.exceptions import OperationalError

from app.redis import RedisError, client, quick_client
from config.queues import RUN_JOB, Tier, queue_name, queues_of
from config.settings import settings

log = structlog.get_logger(__name__)

WAKE_CHANNEL: Final = "lh:dispatch"

_DIRECT = Exchange("", type="direct")

# A broker that hangs must not hang a client's request: one quick try, the dispatcher does the rest.
TRANSPORT_OPTIONS = {
    "socket_timeout": 2,
    "socket_connect_timeout": 1,
    "socket_keepalive": True,
    "health_check_interval": 15,
    "max_retries": 0,
}


@cache
def _sender() -> Celery:
    app = Celery("longhaul", broker=settings().redis_url, set_as_current=False)
    app.conf.update(
        broker_transport_options=TRANSPORT_OPTIONS,
        broker_connection_retry=False,
        task_ignore_result=True,
        task_publish_retry=False,
        task_store_errors_even_if_ignored=False,
    )
    return app


@lru_cache(256)
def _queue(name: str) -> Queue:
    return Queue(name, exchange=_DIRECT)


def ring(job_id: str, worker_id: str, tier: Tier) -> bool:
    """Call after the job is committed as placed on this worker. Whether the message was sent; if not, the
    dispatcher places the job again.
    """
    queue = _queue(queue_name(worker_id, tier))
    try:
        # Undeclared: the worker did that, and the queue of one that is gone is not to come back.
        _sender().send_task(RUN_JOB, args=(job_id,), queue=queue, declare=[], ignore_result=True)
    except (OperationalError, RedisError, OSError) as error:
        log.warning("ring.failed", job_id=job_id, error=str(error))
        return False
    return True


def wake() -> None:
    """Tell the dispatcher that the line or the slots changed; else it looks within half a second."""
    try:
        quick_client().publish(WAKE_CHANNEL, b"")
    except (RedisError, OSError) as error:
        log.warning("wake.failed", error=str(error))


def messages_waiting(worker_id: str, tier: Tier) -> int:
    """How many rings a worker has not taken yet. Raises `RedisError`."""
    return int(client().llen(queue_name(worker_id, tier)))


def forget_worker(worker_id: str) -> None:
    """Drop the queues of a worker that is gone. Raises `RedisError`."""
    client().delete(*queues_of(worker_id))
