"""How the web process is served: gevent, so that one process holds thousands of streams. Requests are logged
by the application, which knows their ids; gunicorn's own lines join its structured log.
"""

import logging
from typing import Any

from config.logging import configure_logging
from config.settings import settings

bind = f"{settings().host}:{settings().port}"
workers = settings().web_workers
worker_class = "gevent"
worker_connections = settings().max_followers + 200  # streams, and beside them ordinary requests
backlog = 2048
keepalive = 75
timeout = 60  # a worker whose event loop is stuck for this long is replaced
graceful_timeout = 6  # streams end within a second; what remains are idle connections
max_requests = 0  # a worker that ended itself would cut its streams
control_socket_disable = True  # two servers on one machine would share its path
accesslog = None
proc_name = "longhaul-web"


def on_starting(_server: Any) -> None:
    _join_structured_log()


def post_fork(_server: Any, _worker: Any) -> None:
    _join_structured_log()


def _join_structured_log() -> None:
    configure_logging()
    logger = logging.getLogger("gunicorn.error")
    logger.handlers = []
    logger.propagate = True
