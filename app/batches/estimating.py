"""What a batch will take and cost, before it runs: prompts as counted, output at most as lines allow. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from config.catalogue import Price


@dataclass(slots=True)
class Load:
    """What lines of one model ask for."""

    jobs: int = 0
    prompt_tokens: int = 0
    reserved_tokens: int = 0

    def add(self, prompt_tokens: int, reserved_tokens: int) -> None:
        self.jobs += 1
        self.prompt_tokens += prompt_tokens
        self.reserved_tokens += reserved_tokens

    @property
    def output_tokens(self) -> int:
        return self.reserved_tokens - self.prompt_tokens


def total(loads: Mapping[str, Load]) -> Load:
    return Load(
        sum(load.jobs for load in loads.values()),
        sum(load.prompt_tokens for load in loads.values()),
        sum(load.reserved_tokens for load in loads.values()),
    )


def estimate(
    loads: Mapping[str, Load],
    invalid: int,
    prices: Mapping[str, Price | None],
    price_factor: Decimal,
    currency: str,
) -> dict[str, Any]:
    """As JSON; costs are decimal strings, null where a model has no price. Of `lines` some are `invalid`."""
    whole = total(loads)
    return {
        "lines": whole.jobs + invalid,
        "invalid": invalid,
        "input_tokens": whole.prompt_tokens,
        "max_output_tokens": whole.output_tokens,
        "currency": currency,
        "price_factor": _written(price_factor),
        "cost_input": _cost(loads, prices, price_factor, with_output=False),
        "cost_max": _cost(loads, prices, price_factor, with_output=True),
    }


def _cost(
    loads: Mapping[str, Load], prices: Mapping[str, Price | None], price_factor: Decimal, *, with_output: bool
) -> str | None:
    cost = Decimal(0)
    for model, load in loads.items():
        price = prices[model]
        if price is None:
            return None
        cost += price.of(load.prompt_tokens, 0, load.output_tokens if with_output else 0)
    return _written(cost * price_factor)


def _written(amount: Decimal) -> str:
    """Without an exponent and without zeros that say nothing."""
    return f"{amount.normalize():f}"
