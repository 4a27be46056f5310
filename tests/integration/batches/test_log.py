"""The log of a batch, written from several processes at once."""

import threading

from sqlalchemy import text

from app.batches import lifecycle
from app.batches.states import BatchStatus
from app.db import transaction
from tests.eventually import eventually
from tests.integration.batches.lines import ask_for, chat


def test_two_writers_of_a_log_at_once_number_their_events_one_after_the_other(make_account):
    batch = ask_for(make_account(), [chat(1)])
    numbers = []

    def note():
        with transaction() as session:
            numbers.append(lifecycle.note_progress(session, batch.id, {}))

    other = threading.Thread(target=note)
    with transaction() as session:
        lifecycle.advance(session, batch.id, {BatchStatus.VALIDATING}, BatchStatus.IN_PROGRESS)
        other.start()
        eventually(_somebody_waits_for_a_lock, 10, "the other writer waits")
    other.join(10)
    assert numbers == [3]


def _somebody_waits_for_a_lock():
    with transaction() as session:
        return session.scalar(text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
