"""What every call of OpenAI's API may say beside its own parameters: the service tier, our extras (in the body
or, where a client can only send OpenAI's parameters, in `metadata`), and parameters that OpenAI knows and we
refuse by name. It knows no single endpoint.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from app.jobs.errors import JobError, RequestInvalid
from app.jobs.requests import MAX_METADATA_PAIRS, JobRequest, MetadataKey, MetadataValue, SessionId, WebhookUrl
from app.openai.errors import Unsupported
from config.catalogue import catalogue
from config.queues import Tier, Window

OnDisconnect = Literal["cancel", "continue"]
ServiceTier = Literal["auto", "default", "flex"]
# What OpenAI means as "nothing asked for", by parameter; null always is.
Harmless = Mapping[str, tuple[Any, ...]]

# OpenAI's other tiers promise what this server does not sell.
_FOREIGN_TIERS: Final = ("scale", "priority", "fast", "ultrafast")


def refuse(given: Mapping[str, Any], table: Harmless, where: str = "") -> None:
    """Raises `Unsupported` for the first name of `table` in `given` that asks for something."""
    for name in [name for name in given if name in table]:
        if asks_for_something(given[name], table[name]):
            raise Unsupported(f"{where}{name}")


def asks_for_something(value: Any, harmless: tuple[Any, ...]) -> bool:
    return value is not None and not any(_same(value, one) for one in harmless)


def _same(value: Any, harmless: Any) -> bool:
    """Equal as JSON, where true is not 1."""
    return bool(value == harmless) and isinstance(value, bool) == isinstance(harmless, bool)


def require_reasoning(model: Any, effort: Any, where: str) -> None:
    """No model can be told not to reason: an effort of none is for those that do not. Raises `Unsupported`."""
    spec = catalogue().get(model) if isinstance(model, str) else None
    if effort == "none" and spec is not None and spec.reasoning_parser:
        raise Unsupported(where, "this model always reasons")


class Extras(BaseModel):
    """A mixin of request bodies. Null stands for a parameter's default, as with OpenAI."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    UNSUPPORTED: ClassVar[Harmless] = {}

    service_tier: ServiceTier = Field("auto", description="flex is the batch tier.")
    metadata: dict[MetadataKey, MetadataValue] = Field(default_factory=dict, max_length=MAX_METADATA_PAIRS)
    tier: Tier | None = None
    completion_window: Window | None = None
    session_id: SessionId | None = None
    on_disconnect: OnDisconnect | None = Field(
        None, description="What becomes of the job when a waiting client goes away; without one: cancel."
    )
    webhook_url: WebhookUrl | None = Field(None, description="Told how the job ended.")

    @model_validator(mode="before")
    @classmethod
    def _of_openai(cls, given: Any) -> Any:
        """What may be said and means nothing is taken out; what cannot be had is refused."""
        if not isinstance(given, dict):
            return given
        refuse(given, cls.UNSUPPORTED)
        if given.get("service_tier") in _FOREIGN_TIERS:
            raise Unsupported("service_tier")
        return {name: value for name, value in given.items() if not cls._says_nothing(name, value)}

    @classmethod
    def _says_nothing(cls, name: str, value: Any) -> bool:
        if name in cls.UNSUPPORTED:
            return True
        return value is None and name in cls.model_fields and not cls.model_fields[name].is_required()


@dataclass(frozen=True, slots=True)
class Routing:
    """How a job is to be run; `service_tier` is what OpenAI's answer calls it."""

    tier: Tier
    completion_window: Window | None
    session_id: str | None
    on_disconnect: OnDisconnect
    service_tier: ServiceTier
    webhook_url: str | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """Those of a `JobRequest`."""
        return {
            "tier": self.tier,
            "completion_window": self.completion_window,
            "session_id": self.session_id,
            "webhook_url": self.webhook_url,
        }


def resolve(body: Extras, window: Window | None = None) -> Routing:
    """`window` is one that the endpoint's own parameters name. What the body says goes before `metadata`.
    Raises `RequestInvalid` or `Unsupported`, naming `metadata.…` where the fault is there.
    """
    asked = {name: _asked(body, name) for name in _METADATA}
    where, completion_window = asked["completion_window"]
    if window is not None and body.completion_window is None:
        where, completion_window = "completion_window", window
    tier = _tier(body, asked["tier"], completion_window)
    if tier is Tier.INTERACTIVE and completion_window not in {None, Window.SOONEST}:
        raise RequestInvalid(where, f"'{where}' of an interactive job can only be soonest.")
    return Routing(
        tier,
        completion_window,
        asked["session_id"][1],
        asked["on_disconnect"][1] or "cancel",
        service_tier_of(tier),
        asked["webhook_url"][1],
    )


def service_tier_of(tier: Tier) -> ServiceTier:
    return "flex" if tier is Tier.BATCH else "default"


def _tier(body: Extras, asked: tuple[str, Tier | None], window: Window | None) -> Tier:
    where, named = asked
    sold = {"default": Tier.INTERACTIVE, "flex": Tier.BATCH}.get(body.service_tier)
    if named and sold and named is not sold:
        raise RequestInvalid(where, f"'{where}' is {named}, but service_tier is {body.service_tier}.")
    implied = Tier.INTERACTIVE if window in {None, Window.SOONEST} else Tier.BATCH
    return named or sold or implied


_METADATA: Final[dict[str, TypeAdapter[Any]]] = {
    "tier": TypeAdapter(Tier),
    "completion_window": TypeAdapter(Window),
    "session_id": TypeAdapter(SessionId),
    "on_disconnect": TypeAdapter(OnDisconnect),
    "webhook_url": TypeAdapter(WebhookUrl),
}


def _asked(body: Extras, name: str) -> tuple[str, Any]:
    """Where an extra stands, and its value."""
    if (said := getattr(body, name)) is not None or name not in body.metadata:
        return name, said
    where = f"metadata.{name}"
    try:
        return where, _METADATA[name].validate_python(body.metadata[name])
    except ValidationError as error:
        raise RequestInvalid(where, f"Invalid '{where}': {error.errors()[0]['msg']}.") from error


def requesting(fields: Mapping[str, Any], names: Mapping[str, str]) -> JobRequest:
    """The job that a body asks for. Raises `RequestInvalid` for what parameters, each fine by itself, do not
    allow together; `names` says what the body calls a job's fields.
    """
    try:
        return JobRequest(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        reason = _in_words_of(names, first["msg"].removeprefix("Value error, ").removesuffix("."))
        # What a shape says of several fields begins with the name of the first.
        path = [str(step) for step in first["loc"]] or [reason.partition(" ")[0]]
        param = ".".join([names.get(path[0], path[0]), *path[1:]])
        raise RequestInvalid(param, f"Invalid '{param}': {reason}.") from error


def words_of(body: Extras, names: Mapping[str, str]) -> Mapping[str, str]:
    """`names`, and that of a webhook's URL where the body's metadata has it."""
    if body.webhook_url is None and "webhook_url" in body.metadata:
        return {**names, "webhook_url": "metadata.webhook_url"}
    return names


def reworded(error: JobError, names: Mapping[str, str]) -> JobError:
    """An error about a job's field, in the words of the surface that it was asked for on."""
    if error.param is not None and error.param in names:
        # `input` is a word, too.
        fields = {ours: theirs for ours, theirs in names.items() if ours != "input"}
        error.args = (_in_words_of(fields, str(error)),)
        error.param = names[error.param]
    return error


def _in_words_of(names: Mapping[str, str], said: str) -> str:
    for ours, theirs in names.items():
        said = re.sub(rf"\b{re.escape(ours)}\b", theirs, said)
    return said
