"""A model's tokenizer and chat template, from the files beside its weights, as Hugging Face's transformers
reads them: the template in a Jinja sandbox, its text encoded without further special tokens.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from app import clock
from app.tokens.errors import PromptInvalid

SPECIAL: Final = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class ChatTokenizer:
    """Safe from any thread."""

    def __init__(self, folder: Path) -> None:
        """Raises `OSError` or `ValueError` where a file is missing or makes no sense."""
        config = json.loads((folder / "tokenizer_config.json").read_text())
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._template = _environment().from_string(_template(folder, config))
        self._special = {name: _content(config[name]) for name in SPECIAL if config.get(name)}

    def render(self, messages: list[dict[str, str]]) -> str:
        """Raises `PromptInvalid` where the template refuses."""
        try:
            return str(self._template.render(messages=messages, add_generation_prompt=True, **self._special))
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            raise PromptInvalid(f"The model's chat template refuses these messages: {error}.") from error

    def count(self, text: str) -> int:
        """Lets go of the interpreter meanwhile, which encoding a single text would not."""
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        return len(encoding.ids)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    return environment


def _template(folder: Path, config: dict[str, Any]) -> str:
    file = folder / "chat_template.jinja"
    template = file.read_text() if file.exists() else config.get("chat_template")
    if isinstance(template, list):
        # Several, by name: the plain chat is called so.
        template = next((one["template"] for one in template if one["name"] == "default"), None)
    if not isinstance(template, str):
        raise ValueError(f"{folder} has no chat template")  # noqa: TRY004 - the file is wrong, not a caller
    return template


def _content(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(pattern: str) -> str:
    local: datetime = clock.now().astimezone()
    return local.strftime(pattern)
