"""When a delivery that failed is tried again, and when an endpoint is left alone."""

from datetime import UTC, datetime

import pytest

from app.webhooks import breaker
from app.webhooks.schedule import DELAYS_SECONDS, next_delay_seconds, parse_retry_after

NOW = datetime(2026, 8, 1, 12, 0, tzinfo=UTC)


def longest(_least: float, most: float) -> float:
    return most


def shortest(least: float, _most: float) -> float:
    return least


def test_the_schedule_is_that_of_standard_webhooks():
    waits = [next_delay_seconds(attempts, None, longest) for attempts in range(1, 10)]
    hour = 3600
    assert waits == [5, 300, hour / 2, 2 * hour, 5 * hour, 10 * hour, 14 * hour, 20 * hour, 24 * hour]
    assert sum(waits) == 75 * hour + 35 * 60 + 5
    assert DELAYS_SECONDS[0] == 0


def test_after_the_last_attempt_there_is_none():
    assert next_delay_seconds(10, None, longest) is None
    assert next_delay_seconds(10, 5, longest) is None


def test_jitter_is_full_but_never_at_once():
    assert next_delay_seconds(5, None, lambda least, most: (least, most) == (0, 18_000) and 9_000.0) == 9_000
    assert next_delay_seconds(5, None, shortest) == 1


def test_whoever_says_when_to_come_back_is_not_bothered_before():
    assert next_delay_seconds(1, 120, longest) == 120
    assert next_delay_seconds(2, 120, longest) == 300
    assert next_delay_seconds(1, 10 * 86_400, longest) == 86_400


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7),
        (" 7 ", 7),
        ("Sat, 01 Aug 2026 12:01:00 GMT", 60),
        ("Sat, 01 Aug 2026 11:00:00 GMT", 0),
        ("Sat, 01 Aug 2026 12:01:00 -0000", None),
        ("9" * 400, 999_999_999_999),
        ("-7", None),
        ("7.5", None),
        ("soon", None),
        ("", None),
        (None, None),
        ("²", None),
    ],
)
def test_when_to_come_back_is_read_as_seconds_or_as_a_date(header, seconds):
    assert parse_retry_after(header, NOW) == seconds


def test_an_endpoint_gets_one_delivery_at_a_time_once_five_in_a_row_failed():
    assert [breaker.width(failures, 4) for failures in (0, 4, 5, 50)] == [4, 4, 1, 1]


def test_and_is_left_alone_longer_and_longer():
    pauses = [breaker.pause_seconds(failures, None) for failures in range(1, 14)]
    assert pauses == [0, 0, 0, 0, 5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_one_that_says_when_to_come_back_is_left_alone_until_then_but_not_for_a_day():
    assert breaker.pause_seconds(1, 30) == 30
    assert breaker.pause_seconds(1, 86_400) == 300
    assert breaker.pause_seconds(7, 1) == 20
