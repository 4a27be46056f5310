"""A worker played by hand: output goes to the tail, to Postgres, or to both, as the test says."""

from collections.abc import Iterator
from typing import Any

import pytest

from app.db import transaction
from app.jobs import lifecycle
from app.jobs.lifecycle import Prefill
from app.jobs.log import Segment, store_segments
from app.jobs.tables import Job
from app.redis import client
from app.streams import frames, tail
from app.streams.announce import announce


class PlayedWorker:
    def __init__(self, job: Job) -> None:
        with transaction() as session:
            move = lifecycle.claim(session, job.id, "played", 60)
        assert move
        announce([move.event])
        self.job, self.seq, self.offset = move.job, move.event.seq, 0
        self.unstored: list[tuple[int, int, str]] = []

    def say(self, text: str, *, live: bool = True) -> None:
        """One delta, live in Redis unless that is `live=False`."""
        self.seq += 1
        if live:
            frame = frames.delta(self.seq, self.seq, self.offset, text)
            entry = tail.TailEntry(self.job.id, frame, [ord(char) for char in text], is_first=True)
            tail.publish(client(), [entry])
        self.unstored.append((self.seq, self.offset, text))
        self.offset += len(text)

    def store(self) -> None:
        """All that is unstored, as one segment."""
        with transaction() as session:
            self._store(session)

    def complete(self) -> None:
        with transaction() as session:
            self._store(session)
            move = lifecycle.complete(session, self.job.id, self.job.lease_id, Prefill(1, 0, 0.0))
        assert move
        announce([move.event])

    def _store(self, session: Any) -> None:
        if not self.unstored:
            return
        ends, end = [], 0
        for _, _, text in self.unstored:
            end += len(text)
            ends.append(end)
        whole = "".join(text for _, _, text in self.unstored)
        first, offset, _ = self.unstored[0]
        segment = Segment(
            job_id=self.job.id,
            lease_id=self.job.lease_id,
            first_seq=first,
            seq=self.unstored[-1][0],
            attempt=self.job.attempt,
            char_offset=offset,
            text=whole,
            ends=ends,
            token_ids=[ord(char) for char in whole],
        )
        assert store_segments(session, [segment])
        self.unstored = []


@pytest.fixture
def play(make_job: Any) -> Iterator[Any]:
    """`play()` gives a played worker with a fresh claimed job."""
    yield lambda **body: PlayedWorker(make_job(**body))
