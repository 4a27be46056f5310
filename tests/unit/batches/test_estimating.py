"""What a batch would take and cost."""

from decimal import Decimal

from app.batches.estimating import Load, estimate
from config.catalogue import Price

PRICE = Price(input=Decimal("0.10"), output=Decimal("0.40"))


def test_an_estimate_counts_output_at_its_most_and_the_window_s_price():
    loads = {"a": Load(jobs=2, prompt_tokens=1_000_000, reserved_tokens=3_000_000)}
    assert estimate(loads, 1, {"a": PRICE}, Decimal("0.5"), "USD") == {
        "lines": 3,
        "invalid": 1,
        "input_tokens": 1_000_000,
        "max_output_tokens": 2_000_000,
        "currency": "USD",
        "price_factor": "0.5",
        "cost_input": "0.05",
        "cost_max": "0.45",
    }


def test_small_amounts_are_written_without_an_exponent():
    said = estimate({"a": Load(1, 1, 2)}, 0, {"a": PRICE}, Decimal(1), "USD")
    assert said["cost_input"] == "0.0000001"


def test_where_a_model_has_no_price_there_is_no_cost():
    loads = {"a": Load(1, 10, 20), "b": Load(1, 10, 20)}
    said = estimate(loads, 0, {"a": PRICE, "b": None}, Decimal(1), "USD")
    assert (said["cost_input"], said["cost_max"], said["input_tokens"]) == (None, None, 20)


def test_nothing_costs_nothing():
    said = estimate({}, 2, {}, Decimal("0.5"), "USD")
    assert (said["lines"], said["invalid"], said["cost_max"]) == (2, 2, "0")
