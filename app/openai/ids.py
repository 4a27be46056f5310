"""The names by which a job is known on OpenAI's surfaces: its own digits under their prefixes. Pure."""

from typing import Final

from app.ids import is_id

RESPONSE: Final = "resp"
CHAT: Final = "chatcmpl"
COMPLETION: Final = "cmpl"

MESSAGE: Final = "msg"
REASONING: Final = "rs"
FUNCTION_CALL: Final = "fc"
FUNCTION_CALL_OUTPUT: Final = "fco"


def job_id_of(prefix: str, public_id: str) -> str | None:
    """The job that `public_id` names, or None where it is not spelled as we spell it."""
    digits = public_id.removeprefix(f"{prefix}_" if prefix == RESPONSE else f"{prefix}-")
    job_id = f"job_{digits}"
    return job_id if digits != public_id and is_id("job", job_id) else None


def resp_id(job_id: str) -> str:
    return f"{RESPONSE}_{_digits(job_id)}"


def chat_id(job_id: str) -> str:
    return f"{CHAT}-{_digits(job_id)}"


def cmpl_id(job_id: str) -> str:
    return f"{COMPLETION}-{_digits(job_id)}"


def item_id(prefix: str, job_id: str, index: int) -> str:
    """Of the item at `index` of a response's output."""
    return f"{prefix}_{_digits(job_id)}{index:02x}"


def input_item_id(prefix: str, job_id: str, index: int) -> str:
    """Of an item of a response's input that came without an id of its own."""
    return f"{prefix}_{_digits(job_id)}i{index:03x}"


def _digits(job_id: str) -> str:
    return job_id.removeprefix("job_")
