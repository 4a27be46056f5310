"""Rates as OpenAI's headers."""

import pytest

from app.api.rates import headers, span
from app.gate.admission import Rate, Rates


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.02, "20ms"),
        (1, "1s"),
        (8.64, "8.64s"),
        (59.999, "1m0s"),
        (86.4, "1m26.4s"),
        (360, "6m0s"),
        (3600, "1h0m0s"),
    ],
)
def test_durations_are_written_as_openai_writes_them(seconds, text):
    assert span(seconds) == text


def test_what_has_no_limit_has_no_header():
    assert headers(Rates()) == {}
    assert headers(Rates(tokens=Rate(100, 40, 36))) == {
        "x-ratelimit-limit-tokens": "100",
        "x-ratelimit-remaining-tokens": "40",
        "x-ratelimit-reset-tokens": "36s",
    }
