"""What the gate's script says is in the way, as an error with a sentence and a time to try again. Pure but for
the jitter: clients that were refused together must not come back together.
"""

import random
from collections.abc import Callable
from typing import Any, Final

from app.gate.errors import AccountFull, LineDraining, LineFull, RateLimited, Refused, WindowUnmeetable
from app.line.wording import in_words
from config.queues import Tier, Window

UNKNOWN_SECONDS: Final = 5.0  # where the drain rate is not known
DRAINING_SECONDS: Final = 30.0
LEAST_SECONDS: Final = 1.0
MOST_SECONDS: Final = 300.0
JITTER: Final = 0.3

Answer = dict[str, Any]


def refusal(answer: Answer, model: str, tier: Tier, window: Window, what: str = "job") -> Refused:
    """The error for the answer of `admit.lua`, which has a `why`; `what` wanted to join."""
    line = f"The {tier} line of '{model}'"
    match answer["why"]:
        case "draining":
            return LineDraining(f"{line} takes no jobs now: it is being drained.", jittered(DRAINING_SECONDS))
        case "full":
            waits = f"{answer['jobs']:.0f} jobs with {answer['tokens']:.0f} tokens wait"
            return LineFull(f"{line} is full: {waits}.", _line_seconds(answer))
        case "yielding":
            reason = f"batch jobs are refused while the interactive line of '{model}' is long"
            return LineFull(f"{line} is closed for now: {reason}.", _line_seconds(answer))
        case "account_full":
            return _account_full(answer, line, what)
        case "window":
            before = "this job" if what == "job" else f"the last job of this {what}"
            now = f"what waits before {before} takes about {in_words(answer['wait'])}"
            return WindowUnmeetable(
                f"A completion_window of {window} cannot be met: {now}. Choose a longer one."
            )
        case _:
            return _rate_limited(answer)


def _account_full(answer: Answer, line: str, who: str) -> AccountFull:
    what, limit, cost = answer["what"], int(answer["limit"]), int(answer["cost"])
    if cost > limit:
        return AccountFull(f"This {who} needs {cost} {what}; your account may have {limit} waiting in a line.")
    holds = f"your account has {answer['own']:.0f} {what} waiting and may have {limit}"
    needs = "" if who == "job" else f"; this {who} needs {cost}"
    return AccountFull(f"{line} takes no more from you: {holds}{needs}.", _line_seconds(answer))


def _rate_limited(answer: Answer) -> RateLimited:
    what, limit, cost = answer["what"], int(answer["limit"]), int(answer["cost"])
    if cost > limit:
        return RateLimited(
            f"This job needs {cost} {what}, its prompt and the most it may make; your {answer['owner']} may use"
            f" {limit} a minute. Shorten the prompt or lower 'max_output_tokens'."
        )
    seconds = jittered(answer["retry"])
    left = f"{answer['remaining']:.0f} of {limit} {what} a minute are left for your {answer['owner']}"
    return RateLimited(f"Rate limit reached: {left}, this job needs {cost}.", seconds)


def _line_seconds(answer: Answer) -> float:
    seconds = answer.get("retry", UNKNOWN_SECONDS)
    return jittered(min(MOST_SECONDS, max(LEAST_SECONDS, seconds)))


def jittered(seconds: float, chance: Callable[[], float] = random.random) -> float:
    """Up to `JITTER` longer, never shorter."""
    return seconds * (1 + JITTER * chance())
