"""From a parsed request to a job that can be submitted: what the model cannot do is refused, the prompt is
counted, the price agreed. It knows no gate and stores nothing.
"""

import hashlib
from decimal import Decimal

import orjson

from app import tokens
from app.accounts.limits import Caller
from app.ids import new_id
from app.jobs.errors import ModelNotFound, RequestInvalid
from app.jobs.requests import JobRequest
from app.jobs.submission import Draft, Spoken
from app.jobs.tables import Surface
from config.catalogue import ModelSpec, catalogue, price_factors


def draft(
    wanted: JobRequest,
    caller: Caller,
    spoken: Spoken,
    *,
    request_hash: bytes,
    idempotency_key: str | None = None,
    job_id: str | None = None,
) -> Draft:
    """Raises `ModelNotFound`, `RequestInvalid` and what `app.tokens.errors` has for it."""
    spec = model(wanted.model)
    if wanted.tool_use and not spec.tool_parser:
        raise RequestInvalid("tools", f"'{spec.name}' calls no tools.")
    prompt_tokens = tokens.count(spec, wanted.prompt)
    output_tokens = _output_limit(wanted, spec, prompt_tokens)
    return Draft(
        job_id=job_id or new_id("job"),
        account_id=caller.account_id,
        key_id=caller.key_id,
        kind=wanted.kind,
        model=wanted.model,
        tier=wanted.effective_tier,
        request={**_kept(wanted), "max_output_tokens": output_tokens},
        metadata=wanted.metadata,
        request_hash=request_hash,
        idempotency_key=idempotency_key,
        expires_after_seconds=wanted.expires_after_seconds,
        session_id=wanted.session_id,
        completion_window=wanted.effective_window,
        price_factor=_price_factor(wanted),
        prompt_tokens=prompt_tokens,
        reserved_tokens=prompt_tokens + output_tokens,
        is_long=prompt_tokens > spec.long_prompt_tokens,
        webhook_url=wanted.webhook_url,
        spoken=spoken,
    )


def hash_of(wanted: JobRequest, spoken: Spoken) -> bytes:
    """By which a repetition is known. Over what the client said, so that a new default of ours does not turn a
    repetition into a conflict.
    """
    body = _kept(wanted)
    if wanted.webhook_url is not None:
        body["webhook_url"] = wanted.webhook_url
    said = body if spoken.surface is Surface.JOBS else [spoken.surface, spoken.echo, body]
    return hashlib.sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).digest()


def _kept(wanted: JobRequest) -> dict[str, object]:
    """The body as the worker reads it, with the tier and window that it means, said or not."""
    return {
        **wanted.model_dump(mode="json", by_alias=True, exclude={"webhook_url"}),
        "tier": wanted.effective_tier.value,
        "completion_window": wanted.effective_window.value,
    }


def model(name: str) -> ModelSpec:
    """Raises `ModelNotFound`."""
    spec = catalogue().get(name)
    if spec is None:
        raise ModelNotFound(name, list(catalogue()))
    return spec


def _output_limit(wanted: JobRequest, spec: ModelSpec, prompt_tokens: int) -> int:
    """How much the job may make: what the client says, else the usual as far as there is room."""
    for param, value in (
        ("max_output_tokens", wanted.max_output_tokens),
        ("min_output_tokens", wanted.min_output_tokens),
    ):
        if value is not None and value > spec.max_output_tokens:
            most = f"'{spec.name}' makes at most {spec.max_output_tokens}"
            raise RequestInvalid(param, f"'{param}' is {value}; {most}.")
    tokens.check(spec, prompt_tokens, wanted.max_output_tokens or wanted.min_output_tokens or None)
    usual = max(spec.default_output_tokens, wanted.min_output_tokens)
    room = min(spec.max_output_tokens, spec.context_tokens - prompt_tokens)
    return wanted.max_output_tokens or min(usual, room)


def _price_factor(wanted: JobRequest) -> Decimal:
    offered = price_factors().get(wanted.effective_tier, {})
    if wanted.effective_window not in offered:
        tier, names = wanted.effective_tier, ", ".join(offered)
        raise RequestInvalid(
            "completion_window", f"The {tier} tier offers no {wanted.effective_window} window, but: {names}."
        )
    return offered[wanted.effective_window]
