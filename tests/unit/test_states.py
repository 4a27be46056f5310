import pytest

from app.jobs.states import TERMINAL, TRANSITIONS, Status

ALLOWED = {
    ("claim", "queued"),
    ("requeue", "in_progress"),
    ("complete", "in_progress"),
    ("stop_early", "in_progress"),
    ("stop_early", "queued"),
    ("fail", "in_progress"),
    ("cancel", "in_progress"),
    ("cancel", "queued"),
    ("expire", "queued"),
}


@pytest.mark.parametrize("verb", TRANSITIONS)
@pytest.mark.parametrize("status", Status)
def test_a_verb_is_allowed_exactly_where_the_table_says(verb, status):
    assert (status in TRANSITIONS[verb].sources) == ((verb, status.value) in ALLOWED)


def test_the_terminal_statuses_are_openais_and_expired():
    assert {"completed", "incomplete", "failed", "cancelled", "expired"} == TERMINAL
