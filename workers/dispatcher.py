"""The dispatcher: it moves jobs from the line to workers that have room. One leads; others wait, and take over
within about a second when its connection to Postgres ends. Two that led at once would place a job twice, which
the claim sorts out; a dispatcher that is away costs latency. The decision is `app.line.plan`'s.
"""

import signal
import threading
from collections.abc import Callable, Sequence
from typing import Final

import structlog
from sqlalchemy.exc import SQLAlchemyError

from app import clock, dispatch
from app.db import transaction
from app.gate import admission, recovery
from app.line import booking, measuring, placing, waiting
from app.line.measures import Measure
from app.line.plan import Capacity, Placement, Room, plan
from app.line.rates import Rates
from app.line.tables import LineState
from app.redis import RedisError, client
from config.catalogue import catalogue
from config.logging import configure_logging
from config.queues import Tier
from config.settings import settings
from workers.leadership import DISPATCHER_LOCK, Bell, Leadership

log = structlog.get_logger(__name__)

BOOKED_AT_ONCE: Final = 1_000
# Measuring looks at every waiting job: at most this share of the time. A deep batch line must not make the
# interactive one, which moves fast, wait for its turn to be measured.
MEASURING_SHARE: Final = 0.05
MEASURE_SECONDS: Final = 0.5
# Between two rounds: whatever rang meanwhile is one round, not many.
PAUSE_SECONDS: Final = (0.01, 0.1)


class Dispatcher:
    """Rounds while it leads. `rates` are learnt anew by each leader."""

    def __init__(self) -> None:
        self._leadership = Leadership(DISPATCHER_LOCK)
        self._bell = Bell()
        self._stopping = threading.Event()
        self._rates = Rates()
        self._measure_at = dict.fromkeys(Tier, 0.0)
        self._leads = False

    def stop(self) -> None:
        self._stopping.set()
        self._bell.ring()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                if self.lead():
                    self._rounds()
                else:
                    self._stopping.wait(settings().leader_retry_seconds)
            except SQLAlchemyError as error:
                log.warning("dispatcher.no_database", error=str(error))
                self._leadership.drop()
                self._stopping.wait(settings().leader_retry_seconds)
        self.resign()

    def resign(self) -> None:
        """Let another lead. This one is over."""
        self._bell.close()
        self._leadership.drop()

    def lead(self) -> bool:
        """Whether this one leads now. Raises `SQLAlchemyError`."""
        leads = self._leadership.is_mine()
        if leads and not self._leads:
            log.info("dispatcher.leads")
            with transaction() as session:
                measuring.open_lines(session, list(catalogue()))
            self._rates, self._measure_at = Rates(), dict.fromkeys(Tier, 0.0)
        self._leads = leads
        return leads

    def _rounds(self) -> None:
        while not self._stopping.is_set() and self._leadership.is_mine():
            began = clock.monotonic()
            self.round()
            least, most = PAUSE_SECONDS
            self._stopping.wait(min(most, max(least, 2 * (clock.monotonic() - began))))
            self._bell.wait(settings().dispatch_interval_seconds)

    def round(self) -> None:
        """Book, measure, place, and tell the gate."""
        self._book()
        with transaction() as session:
            rooms = waiting.read_rooms(session)
            paused = {
                line for line, state in measuring.read_states(session).items() if state is LineState.PAUSED
            }
        due = [tier for tier, at in self._measure_at.items() if clock.monotonic() >= at]
        measures = [measure for tier in due for measure in self._measure(tier, rooms)]
        left = {model: self._dispatch(model, found, paused) for model, found in rooms.items()}
        self._tell_gate(
            measures,
            {
                model: {room.worker_id: room.room_for(Tier.INTERACTIVE) for room in found}
                for model, found in left.items()
                if (model, Tier.INTERACTIVE) not in paused
            },
        )

    def _book(self) -> None:
        with transaction() as session:
            booked = booking.book(session, BOOKED_AT_ONCE)
        self._rates.note(booked, clock.now().timestamp())
        settlements = [
            admission.Settlement(entry.job_id, entry.account_id, entry.key_id, entry.tier, entry.settled_tokens)
            for entry in booked
            if entry.settled_tokens is not None
        ]
        if settlements:
            _at_the_gate(lambda: admission.settle(client(), settlements))

    def _measure(self, tier: Tier, rooms: dict[str, list[Room]]) -> list[Measure]:
        began = clock.monotonic()
        with transaction() as session:
            measures = measuring.measure(session, list(catalogue()), tier, rooms, self._rates, clock.now())
        with transaction() as session:
            measuring.keep(session, measures)
            placing.let_go(session, tier)
        seconds = clock.monotonic() - began
        self._measure_at[tier] = clock.monotonic() + max(MEASURE_SECONDS, seconds / MEASURING_SHARE)
        return measures

    def _dispatch(self, model: str, rooms: list[Room], paused: set[tuple[str, Tier]]) -> Sequence[Room]:
        """Place what can start on the workers of a model. Returns what room is left."""
        with transaction() as session:
            candidates = waiting.read_candidates(session, model, rooms)
            if not candidates.waiting:
                return rooms
            placing.welcome(session, model, candidates.newcomers, candidates.accounts)
            capacity = Capacity(rooms, candidates.accounts, settings().ageing_seconds, settings().aged_share)
            may_start = [job for job in candidates.waiting if (model, job.tier) not in paused]
            decided = plan(may_start, capacity, clock.now().timestamp())
            placed = placing.place(session, decided.placements) if decided.placements else []
            placing.charge(session, _charges(model, placed))
        for placement in placed:
            dispatch.ring(placement.job.job_id, placement.worker_id, placement.job.tier)
        return decided.rooms

    def _tell_gate(self, measures: Sequence[Measure], rooms: dict[str, dict[str, int]]) -> None:
        def tell() -> None:
            if admission.needs_rebuild(client()):
                log.warning("gate.rebuilt")
                with transaction() as session:
                    reservations, used = recovery.read_lost(session)
                admission.rebuild(client(), reservations, used)
            admission.publish(client(), measures, rooms)

        _at_the_gate(tell)


def _charges(model: str, placed: Sequence[Placement]) -> dict[placing.Charge, float]:
    charges: dict[placing.Charge, float] = {}
    for placement in placed:
        who = (placement.job.account_id, model, placement.job.tier)
        charges[who] = charges.get(who, 0.0) + placement.job.tokens
    return charges


def _at_the_gate(act: Callable[[], None]) -> None:
    try:
        act()
    except (RedisError, OSError) as error:
        log.warning("gate.unreachable", error=str(error))


def main() -> None:
    configure_logging()
    dispatcher = Dispatcher()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: dispatcher.stop())
    log.info("dispatcher.started")
    dispatcher.run()


if __name__ == "__main__":
    main()
