"""What a job looks like on the surface that it came through: as which object, with which error.
Of one job; a call's several choices are its route's business.
"""

from collections.abc import Callable
from typing import Any, Final

from app.anthropic import message
from app.jobs.log import Output
from app.jobs.tables import Job, Surface
from app.openai.chat import completion as chat
from app.openai.choices import Ending
from app.openai.completions import completion as completions
from app.openai.responses import response
from app.surfaces import native

Json = dict[str, Any]


def describe(job: Job, output: Output) -> Json:
    """A job that has ended, or what there is of it, in its surface's form. A `failure` is no part of a chat
    completion or a completion: see there whether this has an answer.
    """
    return _DESCRIBE[job.surface](job, output)


def failure(job: Job) -> Json | None:
    """OpenAI's error (`message`, `type`, `code`, `param`) of a job that failed or expired."""
    return Ending.of_job(job).failure


def status_code(job: Job) -> int:
    """The HTTP status that a call which waited for an ended job would be answered with."""
    failed = failure(job)
    if failed is None:
        return 200
    return 400 if failed["type"] == "invalid_request_error" else 500


_DESCRIBE: Final[dict[Surface, Callable[[Job, Output], Json]]] = {
    Surface.JOBS: native.describe,
    Surface.RESPONSES: response.describe,
    Surface.CHAT: lambda job, output: chat.describe([job], [output]),
    Surface.COMPLETIONS: lambda job, output: completions.describe([job], [output]),
    Surface.MESSAGES: message.describe,
}
