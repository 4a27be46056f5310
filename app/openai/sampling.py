"""How text is made, in the words that chat completions and completions share, with their limits. It knows
neither messages nor prompts.
"""

from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from app.jobs.requests import MAX_LOGIT_BIAS, MAX_STOP_STRINGS, StopString
from app.openai.errors import Unsupported
from app.openai.extras import Extras

# Choices of one call, each a job of its own.
MAX_CHOICES: Final = 8
MAX_TOKENS: Final = 1_000_000

Bias = Annotated[float, Field(ge=-100, le=100)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Identifier = Annotated[str, StringConstraints(max_length=256)]


class Part(BaseModel):
    """A piece of a body."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class StreamOptions(Part):
    include_usage: bool = False
    include_obfuscation: bool = False

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("include_obfuscation") is True:
            raise Unsupported("stream_options.include_obfuscation")
        return without_nulls(given)


class Sampling(Extras):
    """A mixin of request bodies; what OpenAI does not have is ours, under vLLM's names."""

    model: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    n: int = Field(1, ge=1, le=MAX_CHOICES)
    stream: bool = False
    stream_options: StreamOptions | None = None
    store: bool = Field(True, description="false: nothing is kept once it has been answered.")
    user: Identifier | None = None

    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    logit_bias: dict[int, Bias] = Field(default_factory=dict, max_length=MAX_LOGIT_BIAS)
    seed: Seed | None = None
    stop: list[StopString] = Field(
        default_factory=list, max_length=MAX_STOP_STRINGS, description="A string stands for a list of it."
    )
    top_k: int = Field(0, ge=0, le=1_000_000)
    min_p: float = Field(0.0, ge=0, le=1)
    repetition_penalty: float = Field(1.0, gt=0, le=10)
    min_tokens: int = Field(0, ge=0, le=MAX_TOKENS)
    ignore_eos: bool = False

    @field_validator("stop", mode="before")
    @classmethod
    def _one_or_many(cls, stop: Any) -> Any:
        return [stop] if isinstance(stop, str) else stop

    @model_validator(mode="after")
    def _streamed(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is only allowed where stream is true")
        return self

    @property
    def wants_usage(self) -> bool:
        """In a stream; without one the answer always has it."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def sampling(self) -> dict[str, Any]:
        """Those fields of a `JobRequest`, but for the seed."""
        return {name: getattr(self, name) for name in _SAME} | {"min_output_tokens": self.min_tokens}

    def seed_of(self, index: int) -> int | None:
        """Of a choice: each another, and the same again when the call is made again."""
        return None if self.seed is None else (self.seed + index + 2**63) % 2**64 - 2**63


_SAME: Final = (
    "model", "metadata", "temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "stop",
    "top_k", "min_p", "repetition_penalty", "ignore_eos",
)  # fmt: skip


def without_nulls(given: Any) -> Any:
    """An object whose nulls stand for defaults."""
    if not isinstance(given, dict):
        return given
    return {name: value for name, value in given.items() if value is not None}
