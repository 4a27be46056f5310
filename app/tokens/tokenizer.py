"""A model's tokenizer, from the files beside its weights, as Hugging Face's transformers reads them. It knows
nothing of caches or of who is waiting.
"""

import json
from pathlib import Path
from typing import Any, Final

from jinja2 import TemplateSyntaxError
from tokenizers import AddedToken, Tokenizer

from app.jobs.prompts import Prompt
from app.tokens.templates import ChatTemplate

_SPECIAL: Final = {f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")}


class ChatTokenizer:
    """Safe from any thread."""

    def __init__(self, folder: Path, template: Path | None = None) -> None:
        """`template` is a file in place of the folder's own. Raises `OSError` or `ValueError` where a file is
        missing or makes no sense.
        """
        config = _read(folder / "tokenizer_config.json")
        special = _special_tokens(folder, config)
        try:
            self._template = ChatTemplate(_template(folder, config, template), _texts(special))
        except TemplateSyntaxError as error:
            raise ValueError(f"The chat template of {folder} makes no sense: {error}") from error
        self._tokenizer = _load(folder / "tokenizer.json")
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.add_tokens(_missing_tokens(self._tokenizer, config, special))

    def render(self, prompt: Prompt) -> str:
        """Raises `PromptInvalid` where the template refuses."""
        return self._template.render(prompt)

    def count(self, text: str, *, is_raw: bool = False) -> int:
        """Lets go of the interpreter meanwhile, unlike encoding without a batch, or listing the ids. To a raw
        text some tokenizers add a token for its begin; a template places its own.
        """
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=is_raw)
        return len(encoding)


def _read(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{path} is no JSON object")  # noqa: TRY004 - the file is wrong, not a caller
    return content


def _load(path: Path) -> Any:
    content = path.read_text(encoding="utf-8")
    try:
        return Tokenizer.from_str(content)
    except Exception as error:
        # The library raises nothing narrower.
        raise ValueError(f"{path} makes no sense: {error}") from error


def _template(folder: Path, config: dict[str, Any], instead: Path | None) -> str:
    file = instead or folder / "chat_template.jinja"
    template = file.read_text(encoding="utf-8") if instead or file.exists() else config.get("chat_template")
    if isinstance(template, list):
        # Several, by name: the plain chat is called so.
        template = next((one["template"] for one in template if one["name"] == "default"), None)
    if not isinstance(template, str):
        raise ValueError(f"{folder} has no chat template")  # noqa: TRY004 - the file is wrong, not a caller
    return template


def _special_tokens(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """By name: the seven that all models know, and a model's own. Each is a text, or an object of its own."""
    known = config
    older = folder / "special_tokens_map.json"
    if "added_tokens_decoder" not in config and older.exists():
        known = config | _read(older)
    own = known.get("extra_special_tokens")
    named = {
        name: token
        for name, token in known.items()
        if name in _SPECIAL or (name.endswith("_token") and isinstance(token, str))
    }
    return {name: token for name, token in (named | (own if isinstance(own, dict) else {})).items() if token}


def _texts(special: dict[str, Any]) -> dict[str, str]:
    return {name: _text(token) for name, token in special.items()}


def _text(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)


def _missing_tokens(tokenizer: Any, config: dict[str, Any], special: dict[str, Any]) -> list[Any]:
    """Tokens that the configuration adds to the tokenizer's own: texts that are never split."""
    by_id = sorted((config.get("added_tokens_decoder") or {}).items(), key=lambda pair: int(pair[0]))
    added = {fields["content"]: _added(fields) for _, fields in by_id}
    own = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens")
    for token in [*special.values(), *(extra if isinstance(extra, list) else [])]:
        if _text(token) not in own | added.keys():
            added[_text(token)] = _added(
                token if isinstance(token, dict) else {"content": token, "special": True}
            )
    return list(added.values())


def _added(fields: dict[str, Any]) -> Any:
    return AddedToken(**{name: value for name, value in fields.items() if name != "__type"})
