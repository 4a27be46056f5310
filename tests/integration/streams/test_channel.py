"""A follower sees every sequence number once and in order, whatever is stored, live or lost."""

import threading
import time

import pytest
from sqlalchemy import text

from app.db import transaction
from app.jobs import lifecycle, rescue
from app.jobs.errors import JobNotFound
from app.jobs.states import TERMINAL
from app.redis import client
from app.streams import channel, tail
from app.streams.announce import announce
from app.streams.hub import INBOX_FRAMES
from tests.eventually import eventually
from tests.following import StrictFollower


class Background:
    """A follower on a thread of its own."""

    def __init__(self, job_id, after=0, follower=None, slow_seconds=0.0):
        self.seen = follower or StrictFollower(cursor=after)
        self.error = None
        self._thread = threading.Thread(target=self._run, args=(job_id, after, slow_seconds), daemon=True)
        self._thread.start()

    def _run(self, job_id, after, slow_seconds):
        try:
            for batch in channel.follow(job_id, after, tick_seconds=0.2):
                self.seen.take_all(frame.body for frame in batch)
                time.sleep(slow_seconds)
        except Exception as error:
            self.error = error

    def ended(self, seconds=10):
        self._thread.join(seconds)
        assert not self._thread.is_alive()
        if self.error:
            raise self.error
        return self.seen


def test_a_follower_replays_what_is_stored_then_the_tail_then_what_comes(play):
    worker = play()
    worker.say("stored ")
    worker.store()
    worker.say("tail ")
    follower = Background(worker.job.id)
    eventually(lambda: follower.seen.text == "stored tail ")
    worker.say("live")
    eventually(lambda: follower.seen.text == "stored tail live", 0.5)
    worker.complete()
    assert follower.ended().events == ["job.queued", "job.in_progress", "job.completed"]


@pytest.mark.parametrize("after", range(8))
def test_a_follower_may_begin_anywhere(play, after):
    worker = play()
    for word in ("a", "bb", "ccc"):
        worker.say(word)
    worker.store()
    worker.say("dddd")
    worker.complete()
    whole = Background(worker.job.id).ended()
    offset = len("".join(("", "", "", "a", "bb", "ccc", "dddd", "")[: after + 1]))
    rest = Background(worker.job.id, after, StrictFollower(cursor=after, text="abbcccdddd"[:offset])).ended()
    assert rest.text == whole.text == "abbcccdddd"


def test_many_followers_of_many_jobs_see_their_own(play):
    workers = [play() for _ in range(5)]
    followers = [(worker, Background(worker.job.id)) for worker in workers for _ in range(5)]
    for turn in range(20):
        for worker in workers:
            worker.say(f"{turn} ")
    for worker in workers:
        worker.complete()
    for _, follower in followers:
        assert follower.ended().text == "".join(f"{turn} " for turn in range(20))


def test_output_that_never_reached_redis_comes_from_postgres(play):
    worker = play()
    follower = Background(worker.job.id)
    eventually(lambda: follower.seen.events)
    worker.say("quiet", live=False)
    worker.store()
    eventually(lambda: follower.seen.text == "quiet", 3)
    worker.say("loud")
    worker.complete()
    assert follower.ended().text == "quietloud"


def test_a_flushed_redis_costs_a_moment_and_no_output(play):
    worker = play()
    follower = Background(worker.job.id)
    worker.say("one ")
    eventually(lambda: follower.seen.text)
    client().flushdb()
    worker.say("two ")
    worker.store()
    worker.complete()
    assert follower.ended().text == "one two "


def test_a_killed_connection_to_redis_is_made_again(play):
    worker = play()
    follower = Background(worker.job.id)
    worker.say("one ")
    eventually(lambda: follower.seen.text)
    client().client_kill_filter(_type="pubsub")
    worker.say("two ")
    worker.store()
    eventually(lambda: follower.seen.text == "one two ", 5)
    worker.say("three")
    eventually(lambda: follower.seen.text == "one two three", 5)
    worker.complete()
    follower.ended()


def test_a_follower_that_falls_behind_is_moved_to_the_log_and_misses_nothing(play):
    worker = play()
    follower = Background(worker.job.id, slow_seconds=0.05)
    eventually(lambda: follower.seen.events)
    words = [f"{n} " for n in range(INBOX_FRAMES * 4)]
    for n, word in enumerate(words):
        worker.say(word)
        if n % 200 == 0:
            worker.store()
    worker.complete()
    assert follower.ended(20).text == "".join(words)


def test_who_was_shown_more_than_is_known_is_rewound_and_nobody_else(play):
    worker = play()
    worker.say("kept ")
    worker.store()
    ahead = Background(worker.job.id)
    worker.say("shown and lost")
    eventually(lambda: "lost" in ahead.seen.text)
    client().delete(tail.tail_key(worker.job.id))  # Redis forgot it
    behind = Background(worker.job.id, 3, StrictFollower(cursor=3, text="kept "))
    _lose(worker.job)
    again = type(worker)(worker.job)
    again.offset = len("kept ")
    again.say("told anew")
    again.complete()
    assert ahead.ended().text == behind.ended().text == "kept told anew"
    assert ahead.seen.rewinds == [5]
    assert behind.seen.rewinds == []


def test_a_cursor_from_the_void_is_rewound_on_any_process_at_any_time(play):
    worker = play()
    worker.say("kept ")
    worker.store()
    _lose(worker.job)
    again = type(worker)(worker.job)
    again.offset = len("kept ")
    again.say("told anew")
    again.complete()
    seen = StrictFollower(cursor=40, text="kept shown and lost")
    late = Background(worker.job.id, 40, seen).ended()
    assert (late.text, late.rewinds) == ("kept told anew", [5])


def test_the_late_words_of_a_lost_worker_reach_nobody(play):
    stale = play()
    stale.say("kept ")
    stale.store()
    follower = Background(stale.job.id)
    eventually(lambda: follower.seen.text == "kept ")
    _lose(stale.job)
    again = type(stale)(stale.job)
    again.offset = len("kept ")
    again.say("new")
    eventually(lambda: follower.seen.text == "kept new")
    stale.say("stale")
    again.say("er")
    again.complete()
    assert follower.ended().text == "kept newer"


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_a_stream_ends_on_every_terminal_status_for_early_and_late_followers(make_job, status):
    job = make_job(expires_after_seconds=60)
    early = Background(job.id)
    eventually(lambda: early.seen.events)
    _end(job, status)
    assert early.ended().events[-1] == f"job.{status}"
    assert Background(job.id).ended().events[-1] == f"job.{status}"
    for beyond in (early.seen.cursor, early.seen.cursor + 1000):
        assert Background(job.id, beyond).ended().events == []


def test_a_job_that_does_not_exist_or_vanishes_ends_the_stream_with_an_error(make_job):
    with pytest.raises(JobNotFound):
        Background("job_" + "0" * 32).ended()


def _lose(job):
    with transaction() as session:
        session.execute(text("UPDATE jobs SET lease_expires_at = now() - interval '1 s'"))
        after = lifecycle.log.last_seq(session, job.id)
    shown = tail.salvage(client(), job.id, job.lease_id, job.attempt, after)
    with transaction() as session:
        move = rescue.rescue(session, job.id, job.lease_id, shown, 3)
        session.execute(text("UPDATE jobs SET available_at = now()"))
    announce([move.event])


def _end(job, status):
    with transaction() as session:
        if status == "cancelled":
            event = lifecycle.request_cancel(session, job.id).event
        elif status == "expired":
            session.execute(text("UPDATE jobs SET expires_at = now()"))
            (event,) = rescue.expire(session, 10)
        else:
            held = lifecycle.claim(session, job.id, "w", 60).job
            args = {
                "completed": (lifecycle.complete,),
                "incomplete": (lifecycle.stop_early, "total_timeout"),
                "failed": (lifecycle.fail, "internal_error", "No."),
            }[status]
            event = args[0](session, job.id, held.lease_id, lifecycle.Prefill(), *args[1:]).event
    announce([event])
