"""The rates of a caller as the headers that OpenAI's clients read."""

from app.gate.admission import Rates


def headers(rates: Rates) -> dict[str, str]:
    """`x-ratelimit-{limit,remaining,reset}-{requests,tokens}`; none for what has no limit."""
    found = {}
    for what, rate in (("requests", rates.requests), ("tokens", rates.tokens)):
        if rate.limit:
            found[f"x-ratelimit-limit-{what}"] = str(rate.limit)
            found[f"x-ratelimit-remaining-{what}"] = str(rate.remaining)
            found[f"x-ratelimit-reset-{what}"] = span(rate.reset_seconds)
    return found


def span(seconds: float) -> str:
    """As OpenAI writes a duration: `20ms`, `1.5s`, `6m0s`, `1h0m0s`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    minutes, rest = divmod(round(seconds, 2), 60)
    hours, minutes = divmod(int(minutes), 60)
    parts = [(hours, "h")] if hours else []
    parts += [(minutes, "m")] if minutes or hours else []
    return "".join(f"{value}{unit}" for value, unit in parts) + f"{round(rest, 2):g}s"
