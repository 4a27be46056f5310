"""A request that may lose its oldest items made to fit its model's context window."""

from typing import Literal

from app import tokens
from app.drafting import model
from app.jobs.requests import JobRequest
from app.openai.responses import truncation


def fitted(wanted: JobRequest, how: Literal["auto", "disabled"]) -> JobRequest:
    """Raises `ModelNotFound`, and what `app.tokens.errors` has for it."""
    if how == "disabled":
        return wanted
    spec = model(wanted.model)
    room = spec.context_tokens - (wanted.max_output_tokens or 1)
    return truncation.fitted(wanted, lambda shorter: tokens.count(spec, shorter.prompt) <= room)
