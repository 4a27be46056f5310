"""A worker's slots: which job may run now, and which must yield for it. The dispatcher plans with what it last
read; this decides with what is so. It knows nothing of why a job goes first.
"""

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from config.queues import Tier
from workers.running import Cause, RunningJob


class Place:
    """A slot that is held for a job to come, or one that a batch job would yield: then `yields` and only an
    interactive job may take it. `job` is the one that came.
    """

    def __init__(self, *, yields: bool) -> None:
        self.yields = yields
        self.job: RunningJob | None = None

    @property
    def tiers(self) -> Collection[Tier]:
        """Whose jobs may take it."""
        return (Tier.INTERACTIVE,) if self.yields else tuple(Tier)


class Slots:
    """Safe from any thread. At most `count` jobs run, those apart that are about to yield."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._lock = threading.Lock()
        self._places: set[Place] = set()

    @contextmanager
    def reserved(self) -> Iterator[Place | None]:
        """A place until the block ends; None where there is no room."""
        place = self._reserve()
        try:
            yield place
        finally:
            if place is not None:
                with self._lock:
                    self._places.remove(place)

    def _reserve(self) -> Place | None:
        with self._lock:
            held = len(self._places) - self._stopping()
            promised = sum(place.yields and place.job is None for place in self._places)
            if held < self.count:
                place = Place(yields=False)
            elif len(self._yielding()) > promised:
                place = Place(yields=True)
            else:
                return None
            self._places.add(place)
            return place

    def fill(self, place: Place, job: RunningJob) -> None:
        """The job has come. If its place was another's, the youngest batch job stops now and will be put back
        into the line with all its output.
        """
        with self._lock:
            place.job = job
            if not place.yields:
                return
            place.yields = False
            # Empty if one ended by itself just now: its slot is free.
            if yielding := self._yielding():
                max(yielding, key=lambda job: job.claimed_at).stop(Cause.PREEMPTED)

    def _yielding(self) -> list[RunningJob]:
        return [place.job for place in self._places if place.job is not None and place.job.may_yield]

    def _stopping(self) -> int:
        """Jobs that give up their slot within an engine step, though they still have to be settled."""
        return sum(place.job is not None and place.job.cause is not None for place in self._places)
