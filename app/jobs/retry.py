"""What to do with a job whose attempt was lost together with its worker. Pure.

An attempt that made progress is free: whatever killed the worker was not this job's first step. One that made
none is charged, since this job may be what kills workers. Charged jobs come back after a growing, jittered
delay, so that a poison job and the innocent ones that died beside it part company.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

BACKOFF_SECONDS: Final = (2.0, 10.0, 30.0)
# A job that gets one token further each time would otherwise cost an engine start per token.
ATTEMPTS_PER_CHARGE: Final = 10


@dataclass(frozen=True, slots=True)
class RetryAfter:
    delay: timedelta
    lost_attempts: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    lost_attempts: int


def after_lost_attempt(
    *, attempt: int, lost_attempts: int, progressed: bool, max_attempts: int, jitter: float
) -> RetryAfter | GiveUp:
    """`attempt` counts all claims, `lost_attempts` those lost in a row without progress before this one;
    `jitter` is drawn from 0..1.
    """
    lost = 0 if progressed else lost_attempts + 1
    if lost >= max_attempts or attempt >= max_attempts * ATTEMPTS_PER_CHARGE:
        return GiveUp(lost)
    if lost == 0:
        return RetryAfter(timedelta(0), 0)
    step = BACKOFF_SECONDS[min(lost, len(BACKOFF_SECONDS)) - 1]
    return RetryAfter(timedelta(seconds=step * jitter), lost)
