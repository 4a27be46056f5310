"""Ring for a job: put its id on the Celery queue of its model and tier. The message is a doorbell, nothing
more: a lost one costs latency (the janitor rings again), a double one finds no job to claim. The only use of
Celery in `app`.
"""

from functools import cache

import structlog
from celery import Celery
from kombu.exceptions import OperationalError

from app.redis import RedisError, client
from config.queues import RUN_JOB, Tier, queue_name
from config.settings import settings

log = structlog.get_logger(__name__)

# A broker that hangs must not hang a client's request: one quick try, the janitor does the rest.
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


def ring(job_id: str, model: str, tier: Tier) -> bool:
    """Call after the job is committed. Whether the message was sent; if not, the janitor will."""
    try:
        _sender().send_task(RUN_JOB, args=(job_id,), queue=queue_name(model, tier), ignore_result=True)
    except (OperationalError, RedisError, OSError) as error:
        log.warning("ring.failed", job_id=job_id, error=str(error))
        return False
    return True


def messages_waiting(model: str, tier: Tier) -> int:
    """How many rings nobody has taken yet. Raises `RedisError`."""
    return int(client().llen(queue_name(model, tier)))
