"""What a model reads, in the form that counting and every engine take: chat messages and tools for its
template, or a raw text. Pure.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Which functions may be called, as chat templates read them, and which must: `choice` is `auto`,
    `required` or the name of one. Without tools, or where the choice is `none`, there is no ToolUse.
    """

    tools: tuple[dict[str, Any], ...]
    choice: str = "auto"
    is_named: bool = False  # `choice` is a function's name
    is_parallel: bool = True
    strict: frozenset[str] = frozenset()  # functions whose arguments must keep to their schema

    @property
    def is_forced(self) -> bool:
        return self.is_named or self.choice == "required"

    @property
    def is_structured(self) -> bool:
        """Whether a grammar holds the model to a form: such output cannot be continued half way."""
        return self.is_forced or bool(self.strict)


@dataclass(frozen=True, slots=True)
class Prompt:
    """`messages` are `{"role", "content"}`, of an assistant perhaps with `tool_calls` (`{"id", "type",
    "function": {"name", "arguments": {...}}}`), of a tool with `tool_call_id` and `name`. `raw` is read as it
    stands.
    """

    messages: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    raw: str | None = None
