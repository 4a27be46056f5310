"""Chat templates, rendered as Hugging Face's transformers renders them: what it offers a template and how it
trims decide what the engine sees. It knows no files and no tokens.
"""

import json
from datetime import datetime
from typing import Any, Final, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from app import clock
from app.jobs.prompts import Prompt
from app.tokens.errors import PromptInvalid


class ChatTemplate:
    """Safe from any thread. `special` are the model's special tokens by name: templates place them."""

    def __init__(self, source: str, special: dict[str, str]) -> None:
        """Raises `jinja2.TemplateSyntaxError`."""
        self._template = _ENVIRONMENT.from_string(source)
        self._special = special

    def render(self, prompt: Prompt) -> str:
        """Raises `PromptInvalid` where the template refuses."""
        # Given though they are None: templates ask whether they are defined, or none.
        given = {
            "messages": prompt.messages,
            "tools": prompt.tools or None,
            "documents": None,
            "add_generation_prompt": True,
        }
        try:
            return self._template.render(self._special | given)
        except (TemplateError, TypeError, ValueError, KeyError, ArithmeticError) as error:
            raise PromptInvalid(f"The model's chat template refuses these messages: {error}.") from error


class _Generation(Extension):
    """`{% generation %}` marks what the model said, for training. Here it is its body."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's interface

    def parse(self, parser: Parser) -> list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return [nodes.Scope(body, lineno=line)]


def _to_json(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - templates give these by place or name
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """Not Jinja's own, which escapes HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(pattern: str) -> str:
    local: datetime = clock.now().astimezone()
    return local.strftime(pattern)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    return environment


_ENVIRONMENT: Final = _environment()
