"""Event types: those of the code, and which of them a wish names."""

import pytest

from app.batches.states import PROGRESS, TERMINAL_BATCHES, BatchStatus
from app.jobs.states import TERMINAL, Status
from app.webhooks import catalogue
from app.webhooks.errors import EventTypeUnknown


def test_the_types_are_those_that_logs_have():
    assert set(catalogue.BATCH_TYPES) == {status.event_type for status in BatchStatus} | {PROGRESS}
    assert set(catalogue.ENDED_BATCHES) == {status.event_type for status in TERMINAL_BATCHES}
    assert {name for name in catalogue.LOG_TYPES if name.startswith("job.")} == {s.event_type for s in Status}
    assert set(catalogue.RESPONSE_TYPES) == {status.event_type for status in TERMINAL}


def test_the_usual_types_tell_of_ends_alone():
    usual = catalogue.log_types(catalogue.USUAL)
    assert usual == {status.event_type for status in TERMINAL} | set(catalogue.ENDED_BATCHES)


@pytest.mark.parametrize(
    ("wanted", "listens"),
    [
        (["job.completed"], {"job.completed"}),
        (["response.failed"], {"job.failed", "job.expired"}),
        (["response.*"], {s.event_type for s in TERMINAL}),
        (["job.*"], {s.event_type for s in Status}),
        (["batch.*"], set(catalogue.BATCH_TYPES)),
        (["*"], {s.event_type for s in Status} | set(catalogue.BATCH_TYPES)),
        (["budget.threshold", "webhook_endpoint.*"], set()),
        ([], set()),
    ],
)
def test_a_wish_names_entries_of_logs(wanted, listens):
    assert catalogue.log_types(wanted) == listens


@pytest.mark.parametrize("name", ["job", "job.", "job.complete", "fine_tuning.job.*", "**", ""])
def test_an_unknown_type_is_refused_with_those_that_there_are(name):
    with pytest.raises(EventTypeUnknown, match=r"response\.completed"):
        catalogue.require_known(["job.completed", name])


def test_every_known_type_can_be_asked_for():
    catalogue.require_known([*catalogue.LOG_TYPES, *catalogue.GROUPS, "*"])
