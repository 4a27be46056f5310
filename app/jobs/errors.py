"""What can go wrong with a job. Each error has a stable `code` and a message that is safe to show; none knows
HTTP (`app.api.errors` maps class to status).
"""

from typing import ClassVar


class JobError(Exception):
    code: ClassVar[str]
    param: str | None = None


class JobNotFound(JobError):
    code = "job_not_found"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"No job with id '{job_id}'.")


class IllegalTransition(JobError):
    code = "illegal_transition"

    def __init__(self, job_id: str, verb: str, status: str) -> None:
        super().__init__(f"Job '{job_id}' is {status}: it cannot {verb} now.")


class JobActive(JobError):
    code = "job_active"

    def __init__(self, job_id: str, status: str) -> None:
        super().__init__(f"Job '{job_id}' is {status}; cancel it before deleting it.")


class JobInBatch(JobError):
    code = "job_in_batch"

    def __init__(self, job_id: str, batch_id: str) -> None:
        super().__init__(f"Job '{job_id}' is a line of '{batch_id}', which has not ended yet.")


class IdempotencyConflict(JobError):
    code = "idempotency_conflict"
    param = "Idempotency-Key"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"This Idempotency-Key was used with a different body, for job '{job_id}'.")


class ModelNotFound(JobError):
    code = "model_not_found"
    param = "model"

    def __init__(self, model: str, known: list[str]) -> None:
        super().__init__(f"The model '{model}' does not exist. Available: {', '.join(sorted(known))}.")


class RequestInvalid(JobError):
    """A request that no model limit allows; `param` names the field, `column` is where JSON on one line goes
    wrong, from 1, in characters.
    """

    code = "invalid_value"

    def __init__(self, param: str | None, message: str, column: int | None = None) -> None:
        self.param = param
        self.column = column
        super().__init__(message)
