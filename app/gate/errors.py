"""Why a job may not join the line. Codes and messages are safe to show; `retry_after_seconds` says when a
client should try again, None that trying again is of no use.
"""

from app.jobs.errors import JobError


class Refused(JobError):
    """A submission that is refused now; nothing is kept of it."""

    code = "refused"

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class RateLimited(Refused):
    """The account's or the key's requests or tokens a minute are used up."""

    code = "rate_limit_exceeded"


class LineFull(Refused):
    """The line is past its high mark."""

    code = "line_full"


class AccountFull(LineFull):
    """The account has as much waiting in the line as it may."""


class LineDraining(Refused):
    """An operator lets this line run empty."""

    code = "line_draining"


class WindowUnmeetable(Refused):
    """The completion window cannot be met at the line's present rate."""

    code = "completion_window_unavailable"
    param = "completion_window"
