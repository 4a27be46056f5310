"""Who goes next, and where: the decision, and nothing but the decision. Pure.

Three passes over what waits. First aged batch jobs, into free slots, while they hold no more than their share
of all slots: so batch never starves. Then interactive jobs: into free slots, else where a batch job will
yield. Then the rest of the batch jobs, into slots that are still free. In each pass the account goes next that
was given the least, weighted, and of its jobs the one that stands first. A long prompt needs, besides, one of
the few slots of its worker that take such.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from config.queues import Tier


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job in the line; times are Unix seconds. `order` sorts the jobs of an account, the smallest first;
    `tokens` is what it may cost; it waits since `since`, is `due` when its completion window ends, and is not
    to start from `expires` on.
    """

    job_id: str
    account_id: str
    tier: Tier
    order: float
    tokens: int
    since: float = 0.0
    due: float | None = None
    expires: float | None = None
    is_long: bool = False


@dataclass(frozen=True, slots=True)
class Room:
    """A worker's slots. Jobs that are placed on it and not claimed yet count as running; `yielding` are the
    batch jobs among them that can be preempted, `long` those with a long prompt.
    """

    worker_id: str
    slots: int
    interactive: int = 0
    batch: int = 0
    yielding: int = 0
    long: int = 0
    long_slots: int = 1
    aged: int = 0

    @property
    def free(self) -> int:
        return self.slots - self.interactive - self.batch

    def room_for(self, tier: Tier) -> int:
        """How many more jobs of a tier could start."""
        return max(0, self.free) if tier is Tier.BATCH else max(0, self.free + self.yielding)


@dataclass(frozen=True, slots=True)
class Account:
    """What an account was given so far, over its weight, in each tier."""

    virtual_tokens: dict[Tier, float] = field(default_factory=dict)
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """What there is to give: the rooms of a model's workers, and the rules. `accounts` may lack those with
    nothing to their name. A batch job is aged once it waited for `ageing_seconds`, or is due within them; aged
    jobs get `aged_share` of all slots.
    """

    rooms: Sequence[Room]
    accounts: Mapping[str, Account] = field(default_factory=dict)
    ageing_seconds: float = 600.0
    aged_share: float = 0.125

    def is_aged(self, job: Waiting, now: float) -> bool:
        if job.tier is not Tier.BATCH:
            return False
        is_due = job.due is not None and job.due - now < self.ageing_seconds
        return is_due or now - job.since > self.ageing_seconds


@dataclass(frozen=True, slots=True)
class Placement:
    """`is_aged`: it came in on the share of the aged, and will not yield."""

    job: Waiting
    worker_id: str
    is_aged: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """`rooms` is what is left."""

    placements: tuple[Placement, ...]
    rooms: tuple[Room, ...]


def plan(waiting: Iterable[Waiting], capacity: Capacity, now: float) -> Plan:
    """Which jobs of one model go to which of its workers."""
    decision = _Decision(capacity)
    jobs = [job for job in waiting if job.expires is None or now < job.expires]
    batch = [job for job in jobs if job.tier is Tier.BATCH]
    aged = [job for job in batch if capacity.is_aged(job, now)]
    decision.place_aged(aged)
    decision.place([job for job in jobs if job.tier is Tier.INTERACTIVE])
    decision.place([job for job in batch if job.job_id not in decision.placed])
    return Plan(tuple(decision.placed.values()), tuple(decision.rooms.values()))


class _Decision:
    """A plan in the making."""

    def __init__(self, capacity: Capacity) -> None:
        self.rooms = {room.worker_id: room for room in capacity.rooms}
        self.placed: dict[str, Placement] = {}
        self._capacity = capacity
        self._given: dict[tuple[str, Tier], float] = {}

    def place_aged(self, jobs: list[Waiting]) -> None:
        rooms = self.rooms.values()
        allowed = max(1, int(sum(room.slots for room in rooms) * self._capacity.aged_share))
        self.place(jobs, limit=max(0, allowed - sum(room.aged for room in rooms)), is_aged=True)

    def place(self, jobs: list[Waiting], limit: int | None = None, *, is_aged: bool = False) -> None:
        """Jobs of one tier, in fair order, until they or the room or the `limit` end."""
        if not jobs:
            return
        tier = jobs[0].tier
        queues: dict[str, list[Waiting]] = {}
        for job in sorted(jobs, key=lambda job: (job.order, job.job_id), reverse=True):
            queues.setdefault(job.account_id, []).append(job)
        turns = [(self._virtual_tokens(account_id, tier), account_id) for account_id in queues]
        heapq.heapify(turns)
        while turns and limit != 0:
            if not any(room.room_for(tier) for room in self.rooms.values()):
                return
            _, account_id = heapq.heappop(turns)
            job = queues[account_id].pop()
            if self._place(job, is_aged=is_aged) and limit is not None:
                limit -= 1
            if queues[account_id]:
                heapq.heappush(turns, (self._virtual_tokens(account_id, tier), account_id))

    def _place(self, job: Waiting, *, is_aged: bool) -> bool:
        room = self._best_room(job)
        if room is None:
            return False
        self.rooms[room.worker_id] = _with(room, job, is_aged=is_aged)
        self.placed[job.job_id] = Placement(job, room.worker_id, is_aged)
        given = self._virtual_tokens(job.account_id, job.tier)
        weight = self._capacity.accounts.get(job.account_id, Account()).weight
        self._given[job.account_id, job.tier] = given + max(1, job.tokens) / weight
        return True

    def _best_room(self, job: Waiting) -> Room | None:
        """A free slot before one that must be freed, and the emptiest worker of those."""
        fit = [
            room
            for room in self.rooms.values()
            if room.room_for(job.tier) > 0 and (not job.is_long or room.long < room.long_slots)
        ]
        return max(fit, key=lambda room: (room.free > 0, room.free / room.slots, room.yielding), default=None)

    def _virtual_tokens(self, account_id: str, tier: Tier) -> float:
        given = self._given.get((account_id, tier))
        if given is not None:
            return given
        return self._capacity.accounts.get(account_id, Account()).virtual_tokens.get(tier, 0.0)


def _with(room: Room, job: Waiting, *, is_aged: bool) -> Room:
    """The room once the job is in it; an interactive job without a free slot takes that of a batch job."""
    long = room.long + job.is_long
    if job.tier is Tier.BATCH:
        # It will yield once it runs, but it is not there yet: nobody counts on that now.
        return replace(room, batch=room.batch + 1, long=long, aged=room.aged + is_aged)
    if room.free > 0:
        return replace(room, interactive=room.interactive + 1, long=long)
    return replace(
        room,
        interactive=room.interactive + 1,
        batch=room.batch - 1,
        yielding=room.yielding - 1,
        long=long,
    )
