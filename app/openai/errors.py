"""What can go wrong where our jobs are spoken of as OpenAI's objects: each error with a stable `code`, a
message that is safe to show, the parameter it is about. None knows HTTP: `app.api.errors` maps class to status.
"""

from app.jobs.errors import JobError


class Unsupported(JobError):
    """A parameter or value that OpenAI knows and this server does not serve; `hint` says what to do instead."""

    code = "unsupported_parameter"

    def __init__(self, param: str, hint: str = "") -> None:
        self.param = param
        super().__init__(f"'{param}' is not supported here{f': {hint}' if hint else ''}.")


class ResponseNotFound(JobError):
    code = "response_not_found"
    param = "response_id"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"Response with id '{response_id}' not found.")


class PreviousResponseNotFound(JobError):
    code = "previous_response_not_found"
    param = "previous_response_id"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"Previous response with id '{response_id}' not found.")


class PreviousResponseUnusable(JobError):
    """One that has not ended, or that failed: nothing can follow it."""

    code = "previous_response_unusable"
    param = "previous_response_id"

    def __init__(self, response_id: str, status: str) -> None:
        super().__init__(f"Previous response '{response_id}' is {status}: nothing can follow it.")


class ItemNotFound(JobError):
    """A cursor into a list of input items that names none of them."""

    code = "item_not_found"
    param = "after"

    def __init__(self, item_id: str) -> None:
        super().__init__(f"Item with id '{item_id}' not found in this response's input.")


class OutputReplaced(JobError):
    """A follower was shown output that the job no longer has: its stream cannot go on, and a new one can."""

    code = "output_replaced"

    def __init__(self) -> None:
        super().__init__(
            "Output that this stream has shown was lost with a worker and replaced. "
            "Retrieve it, or stream it again from the start."
        )
