"""The gate's scripts, each a file beside this one, run in Redis by hash. It knows nothing of what they do."""

from functools import lru_cache
from importlib import resources
from typing import Any

from redis import Redis
from redis.commands.core import Script


def run(redis: Redis, name: str, *arguments: Any) -> Any:
    """What the script answers; one round trip once Redis knows it. Raises `RedisError`."""
    return _script(redis, name)(args=arguments)


@lru_cache(64)
def _script(redis: Redis, name: str) -> Script:
    folder = resources.files("app.gate")
    parts = [(folder / f"{part}.lua").read_text() for part in ("buckets", "lines", name)]
    return redis.register_script("\n".join(parts))
