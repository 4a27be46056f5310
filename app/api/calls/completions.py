"""`/v1/completions`: raw prompts, each choice a job that the request waits for, or streams."""

from functools import partial

from flask import Response
from pydantic import BaseModel, ConfigDict

from app.api.auth import protected
from app.api.bodies import parse_body
from app.api.calls import choices
from app.api.calls.choices import Told
from app.api.describe import describe
from app.jobs.submission import Spoken
from app.jobs.tables import Surface
from app.openai.completions import body as bodies
from app.openai.completions import chunks, completion
from app.openai.completions.body import CreateCompletion

blueprint = protected("completions")


class Completion(BaseModel):
    """OpenAI's completion; streamed, its chunks, and `[DONE]` in the end."""

    model_config = ConfigDict(extra="allow")

    id: str


@blueprint.post("/v1/completions")
@describe(
    "Complete a prompt",
    body=CreateCompletion,
    headers=choices.HEADERS,
    answers={200: (Completion, "The completion; with `stream`, its chunks as server-sent events.")},
    errors=choices.ERRORS,
    media_types=choices.MEDIA_TYPES,
)
def create() -> Response:
    body = parse_body(CreateCompletion)
    asked = [
        (wanted, Spoken(Surface.COMPLETIONS, bodies.echo(body, index), is_stored=body.store))
        for index, wanted in enumerate(bodies.to_requests(body))
    ]
    project = partial(chunks.Projector, include_usage=body.wants_usage)
    return choices.answer(body, asked, Told(bodies.NAMES, completion.describe, project))
