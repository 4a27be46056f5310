"""The body of `POST /v1/completions`, and the jobs that it asks for. What it says is done, or refused."""

from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import Field, model_validator

from app.jobs.requests import JobRequest
from app.openai import extras
from app.openai.errors import Unsupported
from app.openai.extras import Harmless
from app.openai.sampling import MAX_CHOICES, MAX_TOKENS, Sampling

# What OpenAI makes where a call does not say how much it wants.
DEFAULT_TOKENS: Final = 16

# What a completion calls the fields of a job, for what a job's own checks find.
NAMES: Final = {"max_output_tokens": "max_tokens", "min_output_tokens": "min_tokens", "input": "prompt"}


class CreateCompletion(Sampling):
    UNSUPPORTED: ClassVar[Harmless] = {"best_of": (1,), "suffix": ("",)}

    prompt: str | Annotated[list[str], Field(min_length=1, max_length=MAX_CHOICES)]
    echo: bool = False
    logprobs: int | None = Field(None, ge=0, le=5)
    max_tokens: int = Field(DEFAULT_TOKENS, ge=1, le=MAX_TOKENS)

    @model_validator(mode="before")
    @classmethod
    def _foreign(cls, given: Any) -> Any:
        prompt = given.get("prompt") if isinstance(given, dict) else None
        if isinstance(prompt, list) and any(not isinstance(one, str) for one in prompt):
            raise Unsupported("prompt", "prompts of token ids are not supported here; send text")
        return given

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.echo and self.logprobs is not None:
            raise ValueError("echo gives no logprobs of the prompt: it is not supported together with logprobs")
        if (choices := len(self.prompts) * self.n) > MAX_CHOICES:
            raise ValueError(f"n times the prompts is {choices} choices; the limit is {MAX_CHOICES}")
        return self

    @property
    def prompts(self) -> list[str]:
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt


def to_requests(body: CreateCompletion) -> list[JobRequest]:
    """One job a choice, `n` for each prompt. Raises `RequestInvalid` or `Unsupported`."""
    fields = {
        **body.sampling,
        **extras.resolve(body).fields,
        "prompt_format": "raw",
        "max_output_tokens": body.max_tokens,
        "logprobs": body.logprobs,
    }
    return [
        extras.requesting({**fields, "input": prompt, "seed": body.seed_of(choice)}, NAMES)
        for prompt in body.prompts
        for choice in range(body.n)
    ]


def echo(body: CreateCompletion, index: int = 0) -> dict[str, Any]:
    """What is kept of a choice beside its job's request."""
    said = {"user": body.user} if body.user else {}
    return {"n": body.n, "index": index, "echo": body.echo, **said}
