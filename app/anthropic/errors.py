"""What Anthropic's parameters can ask for in vain, and errors as Anthropic writes them."""

from typing import Any, Final

from app.jobs.errors import JobError


class MessageUnsupported(JobError):
    """A parameter or value that Anthropic knows and this server does not serve; `hint` says what else to do."""

    code = "unsupported_parameter"

    def __init__(self, param: str, hint: str = "") -> None:
        self.param = param
        super().__init__(f"'{param}' is not supported here{f': {hint}' if hint else ''}.")


INVALID: Final = "invalid_request_error"
FAILED: Final = "api_error"
_TYPE_BY_STATUS: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def type_of(status: int) -> str:
    """What Anthropic calls an error of this HTTP status."""
    return _TYPE_BY_STATUS.get(status, INVALID if status < 500 else FAILED)


def envelope(kind: str, message: str, request_id: str | None = None) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}
