"""The names of jobs and batches on Anthropic's surface: their own digits under its prefixes. Pure."""

from typing import Final

MESSAGE: Final = "msg"
BATCH: Final = "msgbatch"


def message_id(job_id: str) -> str:
    return f"{MESSAGE}_{job_id.removeprefix('job_')}"


def message_batch_id(batch_id: str) -> str:
    return f"{BATCH}_{batch_id.removeprefix('batch_')}"


def batch_id_of(public_id: str) -> str:
    """The batch that `public_id` names; what is no such name is none of a batch either."""
    digits = public_id.removeprefix(f"{BATCH}_")
    return f"batch_{digits}" if digits != public_id else public_id
