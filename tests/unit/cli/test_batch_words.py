"""A batch in words."""

import pytest

from app.cli.batch_words import (
    checked_status,
    estimated,
    exit_status,
    facts,
    faults,
    line_row,
    money,
    row,
    verdict,
    ways_on,
)
from tests.unit.cli.batches import BATCH_ID, batch, errors, fault

ENDED_AT = 1_767_225_600 + 100


@pytest.mark.parametrize(
    ("status", "completed", "failed", "expected"),
    [
        ("completed", 10, 0, 0),
        ("completed", 9, 1, 2),
        ("completed", 0, 10, 1),
        ("expired", 4, 6, 2),
        ("cancelled", 0, 10, 1),
        ("failed", 0, 10, 1),
    ],
)
def test_the_exit_status_says_whether_every_line_completed(status, completed, failed, expected):
    assert exit_status(batch(status, 10, completed, failed)) == expected


def test_the_verdict_has_counts_tokens_time_rate_and_cost():
    ended = batch("completed", 5_000, 4_990, 10, completed_at=ENDED_AT)
    assert verdict(ended) == (
        "completed · 5,000 lines, 4,990 completed, 10 failed · 1,200 in, 34,000 out tokens · 2 min · "
        "50.0 lines/s · 0.012 USD"
    )


def test_a_file_that_failed_says_how_many_lines_cannot_be_run_and_what_would_run_the_others():
    bad = errors(fault(3, "No."), total=5)
    assert verdict(batch("failed", 60, failed=5, errors=bad)) == (
        "failed: 5 of 60 lines cannot be run, so nothing was (--on-invalid skip runs the others)"
    )
    assert "skip" not in verdict(batch("failed", 5, failed=5, errors=bad))
    assert verdict(batch("failed", 60, errors=errors(fault(None, "No.")))) == "failed: nothing was run"


def test_what_can_be_done_next_is_said():
    ended = batch("completed", 10, 7, 3, output_file_id="file_o", error_file_id="file_e")
    assert [line.partition("longhaul")[2] for line in ways_on(ended)] == [
        f" batch output {BATCH_ID}   (file file_o)",
        f" batch errors {BATCH_ID}   (file file_e)",
        f" batch retry {BATCH_ID}",
    ]


def test_nothing_is_to_be_retried_where_only_lines_that_cannot_be_run_failed():
    ended = batch("completed", 10, 9, 1, error_file_id="file_e", errors=errors(fault(3, "No.")))
    assert not [line for line in ways_on(ended) if "retry" in line]


def test_every_bad_line_is_named_with_its_column_and_reason():
    found = batch(
        "failed",
        errors=errors(
            fault(3, "Unexpected end of data", column=17),
            fault(9, "Input should be a string.", param="body.model"),
            fault(12, "'body.model' is missing.", param="body.model"),
        ),
    )
    assert faults(found) == [
        "line 3, column 17: Unexpected end of data",
        "line 9: Input should be a string. (body.model)",
        "line 12: 'body.model' is missing.",
    ]


def test_where_there_are_more_than_are_listed_it_is_said_how_many():
    found = batch("failed", errors=errors(fault(1, "No."), total=2_001))
    assert faults(found)[1:] == [f"and 2,000 more: longhaul batch errors {BATCH_ID}"]


def test_a_batch_that_failed_as_a_whole_says_why():
    found = batch("failed", total=0, errors=errors(fault(None, "The file is too long.", code="too_long")))
    assert faults(found) == ["The file is too long. (too_long)"]


ESTIMATE = {
    "lines": 1_000,
    "invalid": 2,
    "input_tokens": 50_000,
    "max_output_tokens": 512_000,
    "currency": "USD",
    "price_factor": "0.5",
    "cost_input": "0.0005",
    "cost_max": "12.3456",
}


def test_an_estimate_has_lines_tokens_and_the_most_that_it_can_cost():
    found = batch("completed", dry_run=True, estimate=ESTIMATE)
    assert dict(estimated(found)) == {
        "lines": "1,000, 2 of them cannot be run",
        "tokens": "50,000 in, at most 512,000 out",
        "price": "0.5 of the model's, within 24h",
        "cost": "at most 12.35 USD, 0.00050 USD of it for input",
    }


def test_an_estimate_without_a_price_says_so():
    found = batch("completed", dry_run=True, estimate={**ESTIMATE, "cost_input": None, "cost_max": None})
    assert "no price" in dict(estimated(found))["cost"]


def test_a_check_succeeds_only_where_every_line_can_be_run():
    assert checked_status(batch("completed")) == 0
    assert checked_status(batch("completed", errors=errors(fault(1, "No.")))) == 2
    assert checked_status(batch("failed", errors=errors(fault(1, "No.")))) == 1


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("0", "0.00 USD"),
        ("0.00000123", "0.0000012 USD"),
        ("0.5", "0.50 USD"),
        ("1234.5", "1,234.50 USD"),
        (None, None),
    ],
)
def test_an_amount_has_as_many_digits_as_tell_something(amount, shown):
    assert money(batch(), amount) == shown


def test_a_running_batch_says_what_it_costs_so_far_and_at_most():
    shown = dict(facts(batch(running=3, completed=2, estimate=ESTIMATE)))
    assert shown["cost"] == "0.012 USD, of at most 12.35 USD"
    assert shown["lines"] == "10 lines, 2 completed, 3 running"
    assert "window" in shown
    assert "window" not in dict(facts(batch("completed", completed_at=ENDED_AT)))


def test_a_list_tells_a_dry_run_from_a_batch_that_ran():
    assert row(batch("completed", 1_000, 998, 2))[1:7] == (
        "completed",
        "1,000",
        "998",
        "2",
        "0.012 USD",
        "24h",
    )
    assert row(batch("completed", 10, cost=None, dry_run=True))[1:6] == (
        "completed, dry run",
        "10",
        "0",
        "0",
        "-",
    )


def test_a_line_says_why_it_has_no_whole_answer():
    line = {"line": 3, "custom_id": "a", "status": "incomplete", "job_id": "job_1", "error": None}
    cut = {**line, "usage": {"output_tokens": 1_024}, "incomplete_details": {"reason": "max_output_tokens"}}
    assert line_row(cut) == ("3", "a", "incomplete", "job_1", "1,024", "max_output_tokens")
    bad = {**line, "custom_id": None, "job_id": None, "usage": None, "incomplete_details": None}
    assert line_row({**bad, "error": {"message": "No."}}) == ("3", "-", "incomplete", "-", "-", "No.")
