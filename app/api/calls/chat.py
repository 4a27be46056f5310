"""`/v1/chat/completions`: each choice is a job that the request waits for, or streams."""

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
from app.openai.chat import body as bodies
from app.openai.chat import chunks, completion
from app.openai.chat.body import CreateChat

blueprint = protected("chat")


class ChatCompletion(BaseModel):
    """OpenAI's chat completion; streamed, its chunks, and `[DONE]` in the end."""

    model_config = ConfigDict(extra="allow")

    id: str


@blueprint.post("/v1/chat/completions")
@describe(
    "Complete a chat",
    body=CreateChat,
    headers=choices.HEADERS,
    answers={200: (ChatCompletion, "The completion; with `stream`, its chunks as server-sent events.")},
    errors=choices.ERRORS,
    media_types=choices.MEDIA_TYPES,
)
def create() -> Response:
    body = parse_body(CreateChat)
    asked = [
        (wanted, Spoken(Surface.CHAT, bodies.echo(body, index), is_stored=body.store))
        for index, wanted in enumerate(bodies.to_requests(body))
    ]
    project = partial(chunks.Projector, include_usage=body.wants_usage)
    return choices.answer(body, asked, Told(bodies.NAMES, completion.describe, project))
