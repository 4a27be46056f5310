"""The Redis connection of this process. Redis holds what may be lost: doorbells and live tails."""

from functools import cache

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from config.settings import settings

RedisError = redis.RedisError


@cache
def client() -> redis.Redis:
    """A pooled client, made at first use, hence after a fork. A dead peer is noticed within seconds."""
    return redis.Redis.from_url(
        settings().redis_url,
        socket_connect_timeout=2,
        socket_timeout=5,
        socket_keepalive=True,
        health_check_interval=15,
        # One more try, for a connection that broke while it was idle; a dead server is told of at once.
        retry=Retry(NoBackoff(), 1),
    )


@cache
def quick_client() -> redis.Redis:
    """For what a client's request waits for and can do without: it gives up soon, and never tries twice."""
    return redis.Redis.from_url(
        settings().redis_url,
        socket_connect_timeout=0.25,
        socket_timeout=0.5,
        socket_keepalive=True,
        retry=Retry(NoBackoff(), 0),
    )
