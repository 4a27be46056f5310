"""The live tail of a job in Redis: a stream whose entry ids are sequence numbers (`SEQ-0`), so that Redis
itself refuses a stale worker's late output, and a pub/sub channel that carries the same frames to whoever
listens. All of it may be lost: Postgres has every segment at most half a second later.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from redis import Redis

from app.jobs.log import Segment
from app.jobs.tables import pack_ints, unpack_ints
from app.streams import frames
from app.streams.frames import Frame

TAIL_TTL_SECONDS = 3600
CLOSED_TTL_SECONDS = 30


def tail_key(job_id: str) -> str:
    return f"lh:tail:{job_id}"


def channel(job_id: str) -> str:
    return f"lh:live:{job_id}"


CANCEL_CHANNEL = "lh:cancel"


@dataclass(slots=True)  # not frozen: that costs, and one is made for every token
class TailEntry:
    """One live delta: `frame` as followers get it, and the tokens behind it."""

    job_id: str
    frame: Frame
    token_ids: list[int]
    is_first: bool  # of its attempt


@dataclass(frozen=True, slots=True)
class Stored:
    """How far a job's output is stored: the tail up to there may go."""

    job_id: str
    seq: int


def publish(redis: Redis, entries: Sequence[TailEntry]) -> None:
    """Append to the tails and tell followers, in one round trip. Raises `RedisError` if Redis is away; an
    entry that Redis refuses as stale is dropped.
    """
    keys: list[str] = []
    arguments: list[Any] = [TAIL_TTL_SECONDS]
    for entry in entries:
        job_id = entry.job_id
        keys += (tail_key(job_id), channel(job_id))
        arguments += (entry.frame.seq, entry.frame.body, pack_ints(entry.token_ids), int(entry.is_first))
    redis.eval(_PUBLISH, len(keys), *keys, *arguments)


# One command for all jobs: packing two or three for each would cost the worker most of its time. Every other
# key is a channel.
_PUBLISH = """
for i = 1, #KEYS, 2 do
    local at = i * 2
    local seq, body, tokens, is_first = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local added = redis.pcall('XADD', KEYS[i], seq .. '-0', 'f', body, 't', tokens)
    redis.pcall('PUBLISH', KEYS[i + 1], body)
    if is_first == '1' then
        redis.pcall('EXPIRE', KEYS[i], ARGV[1])
    end
end
"""


def announce(redis: Redis, job_id: str, frame: Frame) -> None:
    """Tell followers of an event that has been committed."""
    redis.publish(channel(job_id), frame.body)


def trim(redis: Redis, stored: Sequence[Stored]) -> None:
    """Drop what is stored, and let what remains expire should its worker vanish."""
    pipe = redis.pipeline(transaction=False)
    for job in stored:
        pipe.xtrim(tail_key(job.job_id), minid=f"{job.seq + 1}-0", approximate=True)
        pipe.expire(tail_key(job.job_id), TAIL_TTL_SECONDS)
    pipe.execute(raise_on_error=False)


def close(redis: Redis, job_id: str, frames_: Sequence[Frame]) -> None:
    """Send the last frames of a job whose log is complete in Postgres, and let its tail go."""
    pipe = redis.pipeline(transaction=False)
    for frame in frames_:
        pipe.publish(channel(job_id), frame.body)
    pipe.expire(tail_key(job_id), CLOSED_TTL_SECONDS)
    pipe.execute(raise_on_error=False)


def read(redis: Redis, job_id: str, after: int) -> list[Frame]:
    """The live frames that directly continue `after`; nothing where the tail has a hole there."""
    found: list[Frame] = []
    for _, fields in _range(redis, job_id, after):
        frame = frames.decode(fields[b"f"])
        if frame.first_seq != after + 1:
            break
        found.append(frame)
        after = frame.seq
    return found


def salvage(redis: Redis, job_id: str, lease_id: str, attempt: int, after: int) -> list[Segment]:
    """The tail after `after` as segments, for whoever takes over from a lost worker."""
    segments = []
    for _, fields in _range(redis, job_id, after):
        body = orjson.loads(fields[b"f"])
        logprobs, parts = body.get("logprobs"), body.get("parts")
        segments.append(
            Segment(
                job_id=job_id,
                lease_id=lease_id,
                first_seq=body.get("first_seq", body["seq"]),
                seq=body["seq"],
                attempt=attempt,
                char_offset=body["offset"],
                text=body["delta"],
                ends=[len(body["delta"])],
                token_ids=unpack_ints(fields[b"t"]),
                logprobs=None if logprobs is None else [logprobs],
                parts=None if parts is None else [parts],
            )
        )
    return segments


def _range(redis: Redis, job_id: str, after: int) -> list[tuple[bytes, dict[bytes, bytes]]]:
    entries: Any = redis.xrange(tail_key(job_id), min=f"{after + 1}-0")
    return list(entries)
