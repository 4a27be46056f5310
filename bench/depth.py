"""`depth`: what the line costs when it is long. Submitting (the gate, the job's transaction, the place that the
answer tells), one round of the dispatcher (room, candidates, plan, placing), a claim and what a worker does
under its lease, in this process, with 1,000 and with 1,000,000 waiting jobs of 50 accounts in two databases of
one server. The two take turns at every single measurement, so that both meet the same moments. What is placed
or claimed waits again afterwards: the depth stays.
"""

import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from redis import Redis
from sqlalchemy import Engine, create_engine, delete, func, insert, text, update
from sqlalchemy.orm import Session

from app import clock
from app.accounts.limits import Limits
from app.db import engine, transaction
from app.gate import admission
from app.jobs import lifecycle, submission
from app.jobs.requests import JobRequest
from app.jobs.states import RequeueReason
from app.jobs.tables import Job, JobEvent, Usage, Worker
from app.line import measuring, places, placing, waiting
from app.line.plan import Capacity, Placement, plan
from app.line.rates import Rates
from bench import bulk
from bench.harness import BenchFailed, draft_of, open_account, platform
from bench.report import Aim, Figure, Report
from config.queues import Tier
from config.settings import settings

MODEL: Final = "depth"
SLOTS: Final = 16  # fewer than each account has waiting in the shallow line: both plans choose from as many
CATALOGUE: Final = f"""
[models.{MODEL}]
engine = "simulated"
context_tokens = 4096
slots = {SLOTS}
default_output_tokens = 64

[models.{MODEL}.line.batch]
max_jobs = 10000000
max_tokens = 100000000000
max_wait_seconds = 1000000
"""
ACCOUNTS: Final = 50
SHALLOW: Final = 1_000
DEEP: Final = 1_000_000
QUICK_DEEP: Final = 100_000
BYTES_A_JOB: Final = 4_000  # on the disk, with its indexes and the log of the changes, and some to spare
WARM_UP: Final = 20
AIM: Final = Aim("ratio", "<=", 1.2)
WORKER_ID: Final = "bench"
MEASURING: Final = "measure the lines"  # looks at all that waits, hence as seldom as it takes long
BODY: Final[dict[str, Any]] = {
    "model": MODEL,
    "tier": "batch",
    "input": "Tell me about the sea and its ships.",
    "max_output_tokens": 64,
}


def measure(report: Report, *, quick: bool) -> None:
    deep, rounds = (QUICK_DEEP, 60) if quick else (DEEP, 300)
    if shutil.disk_usage(settings().var_dir).free < deep * BYTES_A_JOB:
        raise BenchFailed(f"{deep:,} waiting jobs need {deep * BYTES_A_JOB / 1e9:.0f} GB of disk.")
    with platform(CATALOGUE), _two_lines(SHALLOW, deep) as (few, many):
        for number in range(WARM_UP + rounds):
            for line in (few, many) if number % 2 else (many, few):
                line.round(is_counted=number >= WARM_UP)
        for line in (few, many):
            line.measure()
        report.add(*_figures(few, many))
        report.note(f"Medians of {rounds}, with {deep:,} waiting jobs; the reference has {SHALLOW:,}.")
        report.note(f"{deep:,} jobs were put into the line in {many.filling_seconds:.0f} s.")


def _figures(few: "_Line", many: "_Line") -> list[Figure]:
    return [
        Figure(
            name,
            1000 * median(seconds),
            "ms",
            reference=1000 * median(few.taken[name]),
            aim=None if name == MEASURING else AIM,
        )
        for name, seconds in many.taken.items()
    ]


_NOT_PLACED: Final = {"placed_on": None, "rung_at": None, "charged_tokens": 0}


@contextmanager
def _two_lines(shallow: int, deep: int) -> "Iterator[tuple[_Line, _Line]]":
    """The deep one is filled first, so that the shallow one is not the older."""
    tenants = [open_account(f"depth {number}").account_id for number in range(ACCOUNTS)]
    with transaction() as session:
        measuring.open_lines(session, [MODEL])
    url = engine().url
    engine().dispose()  # a database that somebody uses cannot be copied
    many, few = _Line("deep", 1, tenants, deep), _Line("shallow", 2, tenants, shallow)
    admin = create_engine(url.set(database="postgres"), isolation_level="AUTOCOMMIT")
    try:
        for line in (many, few):
            with admin.connect() as connection:
                connection.execute(text(f"CREATE DATABASE {line.name} TEMPLATE {url.database}"))
            line.fill()
        yield few, many
    finally:
        for line in (many, few):
            line.engine.dispose()
        admin.dispose()


@dataclass
class _Line:
    """A line of its own: a database, and one of Redis's. `taken` is seconds, by what took them."""

    name: str
    redis_number: int
    tenants: list[str]
    depth: int
    taken: dict[str, list[float]] = field(default_factory=dict)
    filling_seconds: float = 0.0

    def __post_init__(self) -> None:
        # No statement timeout, unlike the product's: filling takes its time.
        self.engine: Engine = create_engine(engine().url.set(database=self.name), pool_size=1, max_overflow=0)
        self._redis = Redis.from_url(settings().redis_url.removesuffix("/0") + f"/{self.redis_number}")
        self._chance = random.Random(1)

    def fill(self) -> None:
        began = time.monotonic()
        for account_id in self.tenants:
            bulk.insert(self.engine, bulk.Lines(account_id, MODEL, self.depth // ACCOUNTS, 32, 256))
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM (ANALYZE) jobs, job_events"))
            connection.execute(text("CHECKPOINT"))
        with Session(self.engine) as session, session.begin():
            session.execute(insert(Worker).values(id=WORKER_ID, model=MODEL, slots=SLOTS))
        self.measure()
        self.taken.clear()
        self.filling_seconds = time.monotonic() - began

    def measure(self) -> None:
        """As the dispatcher does, at most for a twentieth of its time."""
        with self._timed(MEASURING), Session(self.engine) as session, session.begin():
            found = measuring.measure(session, [MODEL], Tier.BATCH, {}, Rates(), clock.now())
            measuring.keep(session, found)
        admission.publish(self._redis, found, {})

    def round(self, *, is_counted: bool) -> None:
        """Each operation once, and then back to where it was."""
        before = {name: list(seconds) for name, seconds in self.taken.items()}
        with Session(self.engine, expire_on_commit=False) as session:
            submitted = self._submit(session)
            placed = self._plan(session)
            self._claim(session, self._chance.choice(placed))
            self._undo(session, submitted, placed)
        if not is_counted:
            self.taken = before

    def _submit(self, session: Session) -> str:
        draft = draft_of(self._chance.choice(self.tenants), JobRequest(**BODY))
        entry = admission.Entry(
            job_id=draft.job_id,
            account_id=draft.account_id,
            key_id=None,
            model=MODEL,
            tier=draft.tier,
            window=draft.completion_window,
            tokens=draft.reserved_tokens,
            limits=Limits(requests_per_minute=10**6, tokens_per_minute=10**9),
        )
        with self._timed("submit"):
            admitted = admission.admit(self._redis, entry)
            with session.begin():
                job, _ = submission.submit(session, draft)
            with session.begin():
                places.place_of(session, job, admitted.ahead)
        admission.release(self._redis, entry)
        return draft.job_id

    def _plan(self, session: Session) -> list[Placement]:
        with session.begin():
            session.execute(update(Worker).values(seen_at=func.now()))
        with self._timed("plan"), session.begin():
            rooms = waiting.read_rooms(session)[MODEL]
            candidates = waiting.read_candidates(session, MODEL, rooms)
            placing.welcome(session, MODEL, candidates.newcomers, candidates.accounts)
            capacity = Capacity(rooms, candidates.accounts, settings().ageing_seconds, settings().aged_share)
            decided = plan(candidates.waiting, capacity, clock.now().timestamp())
            placed = placing.place(session, decided.placements)
            charges = {(p.job.account_id, MODEL, Tier.BATCH): float(p.job.tokens) for p in placed}
            placing.charge(session, charges)
        if len(placed) != SLOTS:
            raise BenchFailed(f"A plan for {SLOTS} free slots placed {len(placed)} jobs.")
        return placed

    def _claim(self, session: Session, placement: Placement) -> None:
        with self._timed("claim"), session.begin():
            move = lifecycle.claim(session, placement.job.job_id, WORKER_ID, settings().lease_seconds)
        if move is None or move.job.lease_id is None:
            raise BenchFailed("A job that was placed could not be claimed.")
        lease_id, prefill = move.job.lease_id, lifecycle.Prefill(8, 0, 0.01)
        with self._timed("renew"), session.begin():
            lifecycle.renew(session, [lease_id], settings().lease_seconds)
        with self._timed("note a first token"), session.begin():
            lifecycle.note_prefill(session, {lease_id: prefill})
        with self._timed("hand back"), session.begin():
            lifecycle.hand_back(session, move.job.id, lease_id, prefill, RequeueReason.WORKER_STOPPING)

    def _undo(self, session: Session, submitted: str, placed: list[Placement]) -> None:
        ids = [placement.job.job_id for placement in placed]
        with session.begin():
            session.execute(update(Job).where(Job.id.in_(ids)).values(**_NOT_PLACED))
            session.execute(delete(Job).where(Job.id == submitted))
            session.execute(delete(JobEvent).where(JobEvent.job_id == submitted))
            session.execute(delete(Usage))

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.taken.setdefault(name, []).append(time.perf_counter() - began)
