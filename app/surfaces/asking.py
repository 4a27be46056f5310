"""What a line of a batch asks for: a body of one of the surfaces, held to what a line can be. A line is one
answer at the batch's tier and window; what its surface offers beyond that is refused by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.anthropic import body as messages
from app.jobs.errors import JobError, RequestInvalid
from app.jobs.requests import JobRequest
from app.jobs.submission import Spoken
from app.jobs.tables import Surface
from app.openai import extras
from app.openai.chat import body as chat
from app.openai.completions import body as completions
from app.openai.errors import Unsupported
from app.openai.responses import body as responses
from app.surfaces.fitting import fitted
from app.surfaces.parsing import parse
from config.queues import Tier, Window

# What a line may be a request of.
ENDPOINTS: Final[dict[str, Surface]] = {
    "/v1/jobs": Surface.JOBS,
    "/v1/responses": Surface.RESPONSES,
    "/v1/chat/completions": Surface.CHAT,
    "/v1/completions": Surface.COMPLETIONS,
    "/v1/messages": Surface.MESSAGES,
}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    wanted: JobRequest
    spoken: Spoken


def ask(endpoint: str, body: Json, window: Window) -> Asked:
    """What the body of a line asks for. Raises `RequestInvalid` or `Unsupported`, in the surface's words."""
    surface = ENDPOINTS[endpoint]
    _refuse_other_manners(body)
    _refuse_other_routes(body, window, "")
    if body.get("service_tier") == "default":
        raise RequestInvalid("service_tier", "'service_tier' can only be flex: this is a line of a batch.")
    metadata = body.get("metadata")
    if isinstance(metadata, dict) and surface is not Surface.JOBS:
        if "on_disconnect" in metadata:
            raise Unsupported("metadata.on_disconnect", _ELSEWHERE["on_disconnect"][1])
        _refuse_other_routes(metadata, window, "metadata.")
    return _MANNERS[surface].ask({**body, "tier": Tier.BATCH, "completion_window": window})


def reworded(endpoint: str, error: JobError) -> JobError:
    """An error about the job that a line asks for, in the words of the line's surface."""
    return extras.reworded(error, _MANNERS[ENDPOINTS[endpoint]].names)


_ONE: Final = "a line is one answer: send more lines"
# What only other requests can have: what of it asks for nothing, and why a line cannot.
_ELSEWHERE: Final[dict[str, tuple[tuple[Any, ...], str]]] = {
    "stream": ((False,), "the answers of a batch are read from its output"),
    "background": ((False,), "every line runs in the background"),
    "n": ((1,), _ONE),
    "previous_response_id": ((), "a line follows no other response: hand in its items"),
    "on_disconnect": ((), "nobody waits for a line"),
    "expires_after_seconds": ((), "the completion window of the batch bounds its lines"),
}


def _refuse_other_manners(said: Json) -> None:
    for name in [name for name in said if name in _ELSEWHERE]:
        harmless, hint = _ELSEWHERE[name]
        if extras.asks_for_something(said[name], harmless):
            raise Unsupported(name, hint)


def _refuse_other_routes(said: Json, window: Window, where: str) -> None:
    """What a line says of tier and window must be what its batch says."""
    if said.get("tier") not in (None, Tier.BATCH):
        raise RequestInvalid(f"{where}tier", f"'{where}tier' can only be batch: this is a line of a batch.")
    if said.get("completion_window") not in (None, window):
        name = f"{where}completion_window"
        raise RequestInvalid(name, f"'{name}' can only be that of the batch, {window}.")


def _ask_job(body: Json) -> Asked:
    return Asked(parse(JobRequest, body), Spoken())


def _ask_response(body: Json) -> Asked:
    asked = parse(responses.CreateResponse, body)
    wanted = fitted(responses.to_request(asked), asked.truncation)
    return Asked(wanted, Spoken(Surface.RESPONSES, responses.echo(asked), is_stored=asked.store))


def _ask_chat(body: Json) -> Asked:
    asked = parse(chat.CreateChat, body)
    (wanted,) = chat.to_requests(asked)
    return Asked(wanted, Spoken(Surface.CHAT, chat.echo(asked), is_stored=asked.store))


def _ask_completion(body: Json) -> Asked:
    asked = parse(completions.CreateCompletion, body)
    if len(asked.prompts) > 1:
        raise Unsupported("prompt", _ONE)
    (wanted,) = completions.to_requests(asked)
    return Asked(wanted, Spoken(Surface.COMPLETIONS, completions.echo(asked), is_stored=asked.store))


def _ask_message(body: Json) -> Asked:
    asked = parse(messages.CreateMessage, body)
    return Asked(extras.requesting(messages.fields(asked), messages.NAMES), Spoken(Surface.MESSAGES))


@dataclass(frozen=True, slots=True)
class _Manner:
    """How a surface's bodies are read; `names` are its words for a job's fields."""

    ask: Callable[[Json], Asked]
    names: Mapping[str, str]


_MANNERS: Final = {
    Surface.JOBS: _Manner(_ask_job, {}),
    Surface.RESPONSES: _Manner(_ask_response, responses.NAMES),
    Surface.CHAT: _Manner(_ask_chat, chat.NAMES),
    Surface.COMPLETIONS: _Manner(_ask_completion, completions.NAMES),
    Surface.MESSAGES: _Manner(_ask_message, messages.NAMES),
}
