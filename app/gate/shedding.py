"""Whether the gate sheds: read from Redis, where `lines.lua` keeps it. It is not known while Redis is away."""

from collections.abc import Sequence
from dataclasses import dataclass

from redis import Redis

from app.redis import RedisError
from config.queues import Tier


@dataclass(frozen=True, slots=True)
class Shedding:
    """`transitions` counts how often it began or ended."""

    is_on: bool
    transitions: int


def find_shedding(redis: Redis, lines: Sequence[tuple[str, Tier]]) -> dict[tuple[str, Tier], Shedding]:
    """Of those lines; of none while Redis is away."""
    pipe = redis.pipeline(transaction=False)
    for model, tier in lines:
        pipe.hmget(f"lh:line:{model}:{tier.value}", "shedding", "transitions")
    try:
        answers = pipe.execute()
    except (RedisError, OSError):
        return {}
    return {
        line: Shedding(is_on=is_on == b"1", transitions=int(transitions or 0))
        for line, (is_on, transitions) in zip(lines, answers, strict=True)
    }
