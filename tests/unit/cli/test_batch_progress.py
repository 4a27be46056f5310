"""A batch's progress, as its events say it."""

from rich.console import Console

from app.cli.batch_progress import BatchProgress
from tests.unit.cli.batches import batch
from tests.unit.cli.test_progress import Clock

AT = "2026-01-01T00:00:00Z"
AT_SECONDS = 1_767_225_600


def make(**fields):
    clock = Clock()
    return BatchProgress(clock, 100.0, batch(**fields)), clock


def event(seq=3, **fields):
    return {
        "type": "batch.progress",
        "seq": seq,
        "at": AT,
        "request_counts": {"total": 1_000, "completed": 640, "failed": 5},
        "running": 32,
        "lines_per_second": 41.25,
        "tokens_per_second": 5_120.4,
        "estimated_finish_at": AT_SECONDS + 40,
        **fields,
    }


def test_counts_rates_what_is_left_and_cost_are_shown_and_time_goes_on():
    progress, clock = make(total=1_000, estimate=None)
    progress.note(event())
    clock.now += 10
    assert progress.line() == (
        "in_progress · 645/1,000 (64%) · 5 failed · 32 running · 41.2 lines/s · 5,120 tokens/s · 10 s · "
        "30 s left · 0.012 USD"
    )


def test_the_last_line_makes_the_hundredth_percent():
    progress, _ = make(total=1_000, completed=999)
    assert progress.percent == 99
    progress.note(event(request_counts={"total": 1_000, "completed": 1_000, "failed": 0}))
    assert progress.percent == 100


def test_before_the_lines_are_checked_nothing_is_counted():
    progress, clock = make(status="validating", total=0, cost="0")
    clock.now += 2
    assert progress.line() == "validating · 2 s"


def test_a_change_of_status_ends_what_was_said_of_rates():
    progress, _ = make(total=1_000, cost=None)
    progress.note(event())
    progress.note({"type": "batch.finalizing", "seq": 4, "at": AT, "status": "finalizing", "running": 0})
    assert progress.line() == "finalizing · 645/1,000 (64%) · 5 failed · 0 s"


def test_what_the_batch_has_left_behind_changes_nothing():
    progress, _ = make(status="cancelling", total=1_000, completed=700, cost=None)
    for old in (
        {"type": "batch.validating", "seq": 1, "at": AT, "status": "validating"},
        {"type": "batch.in_progress", "seq": 2, "at": AT, "status": "in_progress"},
        event(),
    ):
        progress.note(old)
    assert progress.line() == "cancelling · 700/1,000 (70%) · 0 failed · 0 s"


def test_a_broken_connection_shows():
    progress, _ = make()
    progress.is_connected = False
    assert progress.line().startswith("in_progress, connection lost, trying again")


def test_it_fits_a_terminal_in_two_rows():
    progress, _ = make(total=1_000)
    progress.note(event())
    console = Console(width=80, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(progress)
    rows = captured.get().splitlines()
    assert len(rows) == 2
    assert rows[0].startswith("in_progress")
    assert rows[0].rstrip().endswith("645/1,000 (64%)")
    assert all(len(row) <= 80 for row in rows)
