"""Choices of a call, each a job, as chat completions and completions tell of them alike: how each ended, what
all of them used, and a job's log as it is read piece by piece. It knows neither's shapes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import orjson

from app.jobs.log import REWIND
from app.jobs.parts import TOOL_CALL, Part
from app.jobs.states import Status
from app.jobs.tables import Job
from app.openai import fold
from app.streams.frames import DELTA, Frame

_STATUS_BY_EVENT: Final = {status.event_type: status for status in Status if status.is_terminal}
EXPIRED_MESSAGE: Final = "The job's deadline passed before it could start."


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended, and what it used."""

    status: Status
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    error: dict[str, Any] | None = None

    @classmethod
    def of_job(cls, job: Job) -> Self:
        error = {"code": job.error_code, "message": job.error_message} if job.error_code else None
        return cls(job.status, job.input_tokens, job.cached_tokens, job.output_tokens, error)

    @classmethod
    def of_frame(cls, kind: str, fields: dict[str, Any]) -> Self:
        used = fields["usage"]
        cached = used["input_tokens_details"]["cached_tokens"]
        status = _STATUS_BY_EVENT[kind]
        return cls(status, used["input_tokens"], cached, used["output_tokens"], fields.get("error"))

    @property
    def failure(self) -> dict[str, Any] | None:
        """OpenAI's error, where there is no answer to give."""
        match self.status:
            case Status.EXPIRED:
                code, message = "expired", EXPIRED_MESSAGE
            case Status.FAILED:
                found = self.error or {}
                code, message = found.get("code") or "server_error", found.get("message") or "The job failed."
            case _:
                return None
        kind = "invalid_request_error" if code == "invalid_prompt" else "server_error"
        return {"message": message, "type": kind, "code": code, "param": None}

    def finish_reason(self, *, has_calls: bool = False) -> str:
        """In OpenAI's words. `length` is its only one for an answer that was cut off, whatever cut it."""
        if self.status is not Status.COMPLETED:
            return "length"
        return "tool_calls" if has_calls else "stop"


def usage(endings: Sequence[Ending], reasoning_tokens: int, per_prompt: int) -> dict[str, Any]:
    """Of a whole call, whose every `per_prompt` choices read the same prompt: that counts once."""
    groups = [endings[start : start + per_prompt] for start in range(0, len(endings), per_prompt)]
    readers = [max(group, key=lambda ending: ending.input_tokens) for group in groups]
    prompt_tokens = sum(reader.input_tokens for reader in readers)
    completion_tokens = sum(ending.output_tokens for ending in endings)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {
            "cached_tokens": sum(reader.cached_tokens for reader in readers),
            "cache_write_tokens": 0,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


class Track:
    """One choice as its reader knows it: what it was shown, and how it ended."""

    def __init__(self, job: Job) -> None:
        self.ending: Ending | None = None
        self.has_calls = False
        self._start_seq = job.output_start_seq
        self._shown = fold.Shown()

    @property
    def reasoning_tokens(self) -> int:
        return self._shown.reasoning_tokens

    def feed(self, frame: Frame, *, raw: bool = False) -> list[Part]:
        """What of a frame is new; `raw` reads the model's own words in place of their parts. Raises
        `OutputReplaced` where it contradicts what was shown.
        """
        if frame.is_last:
            self.ending = Ending.of_frame(frame.type, orjson.loads(frame.body))
            if self.ending.failure is None:
                self._shown.finish()
        # Before its start a job's output is void.
        if frame.type not in {DELTA, REWIND} or frame.seq <= self._start_seq:
            return []
        fields = orjson.loads(frame.body)
        if frame.type == REWIND:
            self._shown.rewind(fields["offset"])
            return []
        fresh = self._shown.show({**fields, "parts": None} if raw else fields)
        self.has_calls = self.has_calls or any(part["type"] == TOOL_CALL for part in fresh)
        return fresh
