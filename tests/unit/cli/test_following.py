"""A follower of the command line, against a server that breaks off."""

import pytest

from app.cli import following
from app.cli.client import Api
from app.cli.errors import CommandFailed
from app.cli.following import Follower, the_job
from tests.unit.cli.conftest import CUT, JOB_ID, delta, status

ENDED = {"id": JOB_ID, "status": "completed", "created_at": 0, "last_seq": 4, "usage": {"output_tokens": 2}}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(following, "PAUSE_SECONDS", (0.01,))


def follow(script, after=0):
    follower = Follower(Api(script.url, "secret"), the_job(JOB_ID), after)
    return [event for event in follower if event is not None], follower


def test_every_event_comes_once_however_often_the_connection_breaks(script):
    events = [status(1, "in_progress"), delta(2, 0, "a"), delta(5, 1, "bcd", 3), status(6, "completed")]
    script.connections = [
        [events[0], events[1], CUT],
        [CUT],
        [503],
        [events[2], 1012],
        [1001],
        [events[3], 1000],
    ]
    assert follow(script)[0] == events
    assert [path.partition("?after=")[2] for path in script.asked] == ["0", "2", "2", "2", "5", "5"]
    assert set(script.keys) == {"Bearer secret"}


def test_a_job_that_ended_before_the_cursor_ends_the_stream(script):
    script.job = ENDED
    script.connections = [[1000]]
    (ending,), follower = follow(script, after=4)
    assert (ending["type"], ending["usage"], follower.cursor) == ("job.completed", {"output_tokens": 2}, 4)


def test_a_job_that_ended_while_the_connection_was_down_still_shows_what_it_said(script):
    script.job = ENDED
    script.connections = [[delta(2, 0, "a"), CUT], [delta(3, 1, "b"), status(4, "completed"), 1000]]
    assert [event["seq"] for event in follow(script)[0]] == [2, 3, 4]


@pytest.mark.parametrize("refusal", [404, 403, 4404])
def test_a_refusal_is_not_asked_again(script, refusal):
    script.connections = [[refusal]]
    with pytest.raises(CommandFailed, match=r"Refused|Said so"):
        follow(script)
    assert len(script.asked) == 1


def test_a_revoked_key_is_said_in_a_sentence(script):
    script.connections = [[delta(1, 0, "a"), 4401]]
    with pytest.raises(CommandFailed, match="LONGHAUL_API_KEY"):
        follow(script)


def test_it_gives_up_on_a_server_that_stays_away_and_says_how_to_go_on(script, monkeypatch):
    monkeypatch.setattr(following, "GIVE_UP_SECONDS", 0.05)
    script.connections = [[delta(7, 0, "a"), CUT], *[[503]] * 50]
    with pytest.raises(CommandFailed, match=rf"longhaul watch {JOB_ID} --after 7"):
        follow(script)
