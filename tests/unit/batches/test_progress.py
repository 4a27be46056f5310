"""How fast a batch goes, and when it will end."""

from datetime import UTC, datetime

from app.batches.counting import Counts
from app.batches.progress import Pace, pause_seconds, told
from config.settings import settings

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def counts(completed, tokens=0, failed=0):
    return Counts(
        total=100, completed=completed, failed=failed, queued=100 - completed - failed, output_tokens=tokens
    )


def test_speed_is_that_between_the_first_and_the_last_look():
    pace = Pace()
    pace.note(0.0, counts(0))
    pace.note(10.0, counts(15, tokens=300, failed=5))
    said = told(counts(15, tokens=300, failed=5), pace, NOW)
    assert (said["lines_per_second"], said["tokens_per_second"]) == (2.0, 30.0)
    assert said["estimated_finish_at"] == int(NOW.timestamp()) + 40
    assert said["request_counts"] == {"total": 100, "completed": 15, "failed": 5}


def test_nothing_is_foretold_before_a_line_has_ended():
    pace = Pace()
    pace.note(0.0, counts(0))
    assert told(counts(0), pace, NOW)["estimated_finish_at"] is None
    pace.note(5.0, counts(0))
    assert told(counts(0), pace, NOW)["lines_per_second"] == 0.0


def test_what_was_long_ago_does_not_count():
    pace = Pace()
    for second, done in ((0, 0), (100, 10), (130, 70)):
        pace.note(float(second), counts(done))
    assert pace.lines_per_second == 2.0


def test_a_batch_is_told_of_less_often_the_longer_it_runs():
    assert pause_seconds(0) == pause_seconds(60) == settings().batch_progress_seconds
    assert pause_seconds(10 * 3600) == 36
