"""Output one frame a sequence number: the same at any age of a job, for who read it from its beginning and for
who watched since before it began.
"""

import threading

import pytest

from app.db import transaction
from app.jobs import log
from app.jobs.errors import JobNotFound
from app.streams import channel, hub
from app.streams.frames import DELTA
from tests.eventually import eventually
from tests.integration.streams.conftest import PlayedWorker


def pieces(job_id, after=0):
    return [frame for batch in channel.follow_in_pieces(job_id, after, tick_seconds=0.2) for frame in batch]


class Watching:
    """Follows a new job, with an inbox that was there before it."""

    def __init__(self, inbox, job_id, after):
        self.frames = []
        self._thread = threading.Thread(target=self._run, args=(inbox, job_id, after), daemon=True)
        self._thread.start()

    def _run(self, inbox, job_id, after):
        for batch in channel.follow_new(inbox, job_id, after, tick_seconds=0.2):
            self.frames += batch

    def ended(self):
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self.frames


@pytest.mark.parametrize("after", range(8))
def test_stored_output_is_followed_piece_by_piece_from_anywhere(play, after):
    worker = play()
    for word in ("a", "bb", "ccc", "dddd"):
        worker.say(word)
    live = channel.read_page(worker.job.id, after).frames
    worker.complete()
    found = pieces(worker.job.id, after)
    assert found[:-1] == live
    assert [frame.seq for frame in found] == list(range(after + 1, 8))
    assert all(frame.first_seq == frame.seq for frame in found)


def test_a_long_log_is_followed_piece_by_piece_to_its_end(play):
    worker = play()
    for number in range(channel.PAGE_ROWS_IN_PIECES + 5):
        worker.say(f"{number} ", live=False)
        worker.say("and ", live=False)
        worker.store()
    worker.complete()
    found = pieces(worker.job.id)
    assert len([frame for frame in found if frame.type == DELTA]) == 2 * (channel.PAGE_ROWS_IN_PIECES + 5)
    assert found[-1].is_last


def test_who_watched_before_a_job_began_misses_nothing_and_reads_nothing(make_job, monkeypatch):
    job = make_job()
    with hub.hub().watch(job.id) as inbox:
        eventually(lambda: hub.hub()._subscriber is not None)
        inbox.take(0.2)
        inbox.behind = False
        monkeypatch.setattr(channel, "read_log", None)
        watching = Watching(inbox, job.id, 1)
        worker = PlayedWorker(job)
        worker.say("Hello ")
        worker.say("world")
        worker.complete()
        assert [frame.seq for frame in watching.ended()] == [2, 3, 4, 5]


def test_who_missed_something_reads_it(make_job):
    job = make_job()
    worker = PlayedWorker(job)
    worker.say("Hello ")
    with hub.hub().watch(job.id) as inbox:
        watching = Watching(inbox, job.id, 1)
        worker.say("world")
        eventually(lambda: len(watching.frames) == 3)
        worker.say("!", live=False)
        worker.store()
        worker.complete()
        assert [frame.seq for frame in watching.ended()] == [2, 3, 4, 5, 6]


def test_a_follower_whose_job_vanished_unheard_is_told(play):
    worker = play()
    follower = channel.follow_in_pieces(worker.job.id, 0, tick_seconds=0.2)
    assert next(follower)
    with transaction() as session:
        log.erase(session, [worker.job.id])
    with pytest.raises(JobNotFound):
        eventually(lambda: next(follower) and False, 5)
