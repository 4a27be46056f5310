"""The gate to the line: may this job join, and is a worker free for it? One round trip to Redis, in a script
that changes all or nothing (`admit.lua`). What it knows of the lines is what the dispatcher publishes; all of
it may be lost, and is rebuilt from Postgres. It knows no table.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar

import orjson
from redis import Redis

from app.accounts.limits import Limits
from app.gate.errors import Refused
from app.gate.refusals import refusal
from app.gate.scripts import run
from app.line.estimates import Ahead
from app.line.measures import Measure
from config.catalogue import DEFAULT_LIMITS, catalogue
from config.queues import Tier, Window
from config.settings import settings

EPOCH_KEY: Final = "lh:gate-epoch"
EPOCH_SECONDS: Final = 7 * 86_400
ROOM_SECONDS: Final = 10  # interactive jobs still ring for so long when the dispatcher is gone
SWEEP_COUNT: Final = 20  # expired reservations that one admission gives back
CHUNK: Final = 500  # what one script call takes on, so that nobody waits long behind it

_NO_RATES: Final = {
    "requests_per_minute": 0,
    "key_requests_per_minute": 0,
    "tokens_per_minute": 0,
    "key_tokens_per_minute": 0,
}

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Entry:
    """A job that wants to join. `tokens` is its prompt's and the most that it may make."""

    job_id: str
    account_id: str
    key_id: str | None
    model: str
    tier: Tier
    window: Window
    tokens: int
    is_long: bool = False
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class BulkEntry:
    """Batch jobs of one model that want to join together, all or none; `tokens` are those of all. They are free
    of rates: what bounds them is how much of the account may wait.
    """

    account_id: str
    model: str
    window: Window
    jobs: int
    tokens: int
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Rate:
    """A bucket; a `limit` of 0 is none. It is full again in `reset_seconds`."""

    limit: int = 0
    remaining: int = 0
    reset_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Rates:
    requests: Rate = Rate()
    tokens: Rate = Rate()


@dataclass(frozen=True, slots=True)
class Admission:
    """`worker_id` has a place that is now this job's. The wait is known once the line's rate is. What `ahead`
    says waits already, of the same account.
    """

    worker_id: str | None = None
    estimated_wait_seconds: float | None = None
    ahead: Ahead = field(default_factory=Ahead)
    rates: Rates = Rates()


@dataclass(frozen=True, slots=True)
class Settlement:
    job_id: str
    account_id: str
    key_id: str | None
    tier: Tier
    used_tokens: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """What an active job has reserved."""

    job_id: str
    account_id: str
    key_id: str | None
    tier: Tier
    tokens: int
    limits: Limits


@dataclass(frozen=True, slots=True)
class Used:
    """What a key (or what came without one) used of its account's rates in the last minute: the tokens of jobs
    that ended and the requests that were accepted.
    """

    account_id: str
    key_id: str | None
    tier: Tier
    tokens: int
    requests: int
    limits: Limits


def ask(redis: Redis, entry: Entry) -> tuple[Admission, Refused | None]:
    """The admission and, if it is refused, why; the rates hold in both cases. Raises `RedisError`."""
    asked = {
        **_line_of(entry.account_id, entry.model, entry.tier, entry.window),
        "job": entry.job_id,
        "jobs": 1,
        "key": entry.key_id or "",
        "tokens": entry.tokens,
        "wants_place": entry.tier is Tier.INTERACTIVE and not entry.is_long,
        "limits": _of_key(entry.limits, entry.key_id),
    }
    answer: dict[str, Any] = orjson.loads(run(redis, "admit", orjson.dumps(asked)))
    ahead = Ahead(int(answer.get("jobs", 0)), int(answer.get("tokens", 0)))
    admission = Admission(answer.get("worker"), answer.get("wait"), ahead, _rates(answer["rates"]))
    return admission, refusal(answer, entry.model, entry.tier, entry.window) if "why" in answer else None


def _line_of(account_id: str, model: str, tier: Tier, window: Window) -> dict[str, Any]:
    return {
        "account": account_id,
        "model": model,
        "tier": tier,
        "window": window,
        "window_seconds": window.seconds or 0,
        "windows_before": _up_to(window),
        "lines": _line_limits(model),
        "reservation_seconds": settings().reservation_seconds,
        "sweep": SWEEP_COUNT,
    }


def admit_bulk(redis: Redis, entry: BulkEntry) -> Refused | None:
    """Why they may not join; None: they have. Raises `RedisError`."""
    asked = {
        **_line_of(entry.account_id, entry.model, Tier.BATCH, entry.window),
        "jobs": entry.jobs,
        "key": "",
        "tokens": entry.tokens,
        "wants_place": False,
        "limits": {**asdict(entry.limits), **_NO_RATES},
    }
    answer: dict[str, Any] = orjson.loads(run(redis, "admit", orjson.dumps(asked)))
    return refusal(answer, entry.model, Tier.BATCH, entry.window, "batch") if "why" in answer else None


def release_bulk(redis: Redis, entry: BulkEntry) -> None:
    """As if they never came."""
    where = (entry.model, Tier.BATCH.value, entry.account_id, entry.window.value)
    run(redis, "release_bulk", *where, entry.jobs, entry.tokens)


def admit(redis: Redis, entry: Entry) -> Admission:
    """Raises `Refused`, or `RedisError` if Redis is away."""
    admission, refused = ask(redis, entry)
    if refused is not None:
        raise refused
    return admission


def release(redis: Redis, entry: Entry, worker_id: str | None = None) -> None:
    """As if an admitted job never came; `worker_id` is the place it got. Only the request stays counted."""
    where = (entry.account_id, entry.job_id, entry.model, entry.tier.value, entry.window.value)
    run(redis, "release", *where, entry.tokens, worker_id or "")


def settle(redis: Redis, settlements: Sequence[Settlement]) -> None:
    """Give back what was reserved and not used. A second time, or for what is not reserved, it does nothing."""
    for some in _chunks(settlements):
        run(redis, "settle", *(value for s in some for value in (s.account_id, s.job_id, s.used_tokens)))


def publish(redis: Redis, measures: Sequence[Measure], rooms: Mapping[str, Mapping[str, int]]) -> None:
    """Tell the gate what there is: lines as measured and, by model and worker, room for interactive jobs."""
    lines = [_measured(measure) for measure in measures]
    run(redis, "publish", orjson.dumps(lines), orjson.dumps(rooms), ROOM_SECONDS)
    # It must not make the epoch: contents lost since the last look would then go unnoticed.
    redis.expire(EPOCH_KEY, EPOCH_SECONDS)


def needs_rebuild(redis: Redis) -> bool:
    """Whether Redis lost its contents since `rebuild`, or never had any."""
    return not redis.exists(EPOCH_KEY)


def rebuild(redis: Redis, reservations: Sequence[Reservation], used_last_minute: Sequence[Used]) -> None:
    """Reservations of the active jobs, and buckets at their limit less those and what was used lately. What was
    let in since the loss is in Redis already, and counts once.
    """
    taken = list(_taken(reservations, used_last_minute).items())
    seconds = settings().reservation_seconds
    for buckets in _chunks(taken):
        flat = [(name, limit, tokens) for (name, limit), tokens in buckets]
        run(redis, "rebuild", b"[]", orjson.dumps(flat), seconds)
    for some in _chunks([r for r in reservations if _has_tokens(r.limits)]):
        kept = [
            {
                "job": r.job_id,
                "account": r.account_id,
                "key": r.key_id if r.key_id and r.limits.key_tokens_per_minute else "",
                "tier": r.tier,
                "tokens": r.tokens,
            }
            for r in some
        ]
        run(redis, "rebuild", orjson.dumps(kept), b"[]", seconds)
    redis.set(EPOCH_KEY, 1, ex=EPOCH_SECONDS)


def _taken(reservations: Iterable[Reservation], used: Iterable[Used]) -> dict[tuple[str, int], int]:
    """How much of each bucket that has a limit; named as in `buckets.lua`."""
    taken: dict[tuple[str, int], int] = {}
    shared: list[Reservation | Used] = [*reservations, *used]
    for one in shared:
        limits = one.limits
        requests = one.requests if isinstance(one, Used) else 0
        shares = [
            (f"lh:tokens:{one.account_id}:{one.tier}", limits.tokens_per_minute, one.tokens),
            (f"lh:requests:{one.account_id}", limits.requests_per_minute, requests),
        ]
        if one.key_id:
            shares += [
                (f"lh:tokens:{one.key_id}", limits.key_tokens_per_minute, one.tokens),
                (f"lh:requests:{one.key_id}", limits.key_requests_per_minute, requests),
            ]
        for name, limit, amount in shares:
            if limit:
                taken[name, limit] = taken.get((name, limit), 0) + amount
    return taken


def _has_tokens(limits: Limits) -> bool:
    return bool(limits.tokens_per_minute or limits.key_tokens_per_minute)


def _of_key(limits: Limits, key_id: str | None) -> dict[str, Any]:
    keyless = {} if key_id else {"key_requests_per_minute": 0, "key_tokens_per_minute": 0}
    return {**asdict(limits), **keyless}


def _up_to(window: Window) -> list[Window]:
    """The windows whose jobs stand before a new one of this window."""
    return [other for other in Window if (other.seconds or 0) <= (window.seconds or 0)]


def _line_limits(model: str) -> dict[str, dict[str, Any]]:
    spec = catalogue().get(model)
    limits = spec.line if spec else DEFAULT_LIMITS
    return {tier.value: limits[tier].model_dump() for tier in Tier}


def _measured(measure: Measure) -> dict[str, Any]:
    return {
        "model": measure.model,
        "tier": measure.tier,
        "state": measure.state,
        "jobs": measure.jobs,
        "tokens": measure.tokens,
        "jobs_per_second": measure.jobs_per_second,
        "tokens_per_second": measure.tokens_per_second,
        "weights": sum(account.weight for account in measure.accounts.values()),
        "accounts": {
            name: [account.jobs, account.tokens, {w.value: tokens for w, tokens in account.windows.items()}]
            for name, account in measure.accounts.items()
        },
        "lines": _line_limits(measure.model),
    }


def _rates(found: Any) -> Rates:
    return Rates(
        **{
            what: Rate(int(rate["limit"]), int(rate["remaining"]), float(rate["reset"]))
            for what, rate in dict(found).items()
        }
    )


def _chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]
