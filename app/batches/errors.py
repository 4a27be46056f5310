"""What can go wrong with a batch. Each error has a stable `code` and a message that is safe to show; none knows
HTTP. What is wrong with a single line is a fault, not an error (`app.batches.checking`).
"""

from typing import Final

from app.jobs.errors import JobError


class BatchError(JobError):
    """Something about a whole batch."""

    code = "batch_error"


class BatchNotFound(BatchError):
    code = "batch_not_found"
    param = "batch_id"

    def __init__(self, batch_id: str) -> None:
        super().__init__(f"No batch with id '{batch_id}'.")


class LineNotFound(BatchError):
    code = "line_not_found"
    param = "line"

    def __init__(self, batch_id: str, line: int | str) -> None:
        super().__init__(f"Batch '{batch_id}' has no line {line}.")


class BatchActive(BatchError):
    code = "batch_active"

    def __init__(self, batch_id: str, status: str) -> None:
        super().__init__(f"Batch '{batch_id}' is {status}: it has to end first.")


class ResultsGone(BatchError):
    code = "results_gone"

    def __init__(self, batch_id: str) -> None:
        super().__init__(f"The results of batch '{batch_id}' are not kept any more.")


class NothingToRetry(BatchError):
    code = "nothing_to_retry"

    def __init__(self, batch_id: str) -> None:
        super().__init__(f"No line of batch '{batch_id}' that was run has failed.")


class BatchIdempotencyConflict(BatchError):
    code = "idempotency_conflict"
    param = "Idempotency-Key"

    def __init__(self, batch_id: str) -> None:
        super().__init__(f"This Idempotency-Key was used with a different body, for batch '{batch_id}'.")


class InputFileNotFound(BatchError):
    code = "input_file_not_found"
    param = "input_file_id"

    def __init__(self, file_id: str) -> None:
        super().__init__(f"No file with id '{file_id}'.")


class InputFileInvalid(BatchError):
    """A file that no batch can be made of, whatever its lines say."""

    code = "invalid_input_file"
    param = "input_file_id"


INVALID_LINES: Final = "invalid_lines"


class BatchRejected(BatchError):
    """Why a batch fails once its file is read; `code` is kept with it. Of `INVALID_LINES`, faults say more."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code  # type: ignore[misc]  # one class for what only ends up in a row


class LineInvalid(BatchError):
    """What is wrong with a line beside its body; it ends up as a fault."""

    def __init__(self, code: str, param: str | None, message: str) -> None:
        super().__init__(message)
        self.code = code  # type: ignore[misc]  # one class for what only ends up in a row
        self.param = param
