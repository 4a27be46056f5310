"""What can go wrong with a file. Each error has a stable `code` and a message that is safe to show."""

from app.jobs.errors import JobError


class FileNotFound(JobError):
    code = "file_not_found"
    param = "file_id"

    def __init__(self, file_id: str) -> None:
        super().__init__(f"No file with id '{file_id}'.")


class FileTooLarge(JobError):
    code = "file_too_large"
    param = "file"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The file is larger than a file may be: {limit} bytes.")


class StorageFull(JobError):
    """An account's quota; `what` names it."""

    code = "storage_quota_exceeded"
    param = "file"

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"Your account may keep {limit} {what}; delete some first.")


class StorageUnavailable(JobError, OSError):
    """Where contents are cannot be reached, or fails. Like any server that is away, it is an `OSError`."""

    code = "storage_unavailable"

    def __init__(self) -> None:
        super().__init__("The storage of files cannot be reached right now.")
