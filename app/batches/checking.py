"""A line of a batch's input into a job to be, or into what is wrong with it, as exactly as it can be said. It
stores nothing.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from app import drafting
from app.accounts.limits import Caller
from app.batches.errors import LineInvalid
from app.batches.reading import Line
from app.jobs.errors import JobError, RequestInvalid
from app.jobs.submission import Draft
from app.surfaces import asking, parsing
from app.webhooks import registering
from config.queues import Window
from config.settings import settings

MAX_CUSTOM_ID_CHARS: Final = 512
MAX_SHOWN_CHARS: Final = 100
# Each may take as long as a name service lets it.
MAX_CALLBACK_HOSTS: Final = 20

_NAMES: Final = ("custom_id", "method", "url", "body")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Checked:
    """A line that can be run."""

    line: int
    custom_id: str
    draft: Draft


@dataclass(frozen=True, slots=True)
class Fault:
    """As `BatchFault`: `line` 0 is the whole file."""

    line: int
    code: str
    message: str
    param: str | None = None
    column: int | None = None
    custom_id: str | None = None


class Checker:
    """Of one batch. `callbacks_refused` is why its account cannot have a `webhook_url`, if it cannot."""

    def __init__(
        self, endpoint: str, window: Window, caller: Caller, callbacks_refused: JobError | None = None
    ) -> None:
        self._endpoint = endpoint
        self._window = window
        self._caller = caller
        self._callbacks_refused = callbacks_refused
        self._hosts: set[str] = set()
        # By a digest: names may be long, and lines many.
        self._lines_by_id: dict[bytes, int] = {}

    def check(self, line: Line) -> Checked | Fault:
        custom_id = None
        try:
            said = _load(line)
            custom_id = _custom_id(said)
            self._require_first(custom_id, line.number)
            body = self._body(said)
        except JobError as error:
            return _fault(line.number, custom_id, error, error.param)
        try:
            return Checked(line.number, custom_id, self._draft(body, line.raw))
        except JobError as error:
            param = "body" if error.param is None else f"body.{error.param}"
            return _fault(line.number, custom_id, error, param)

    def _require_first(self, custom_id: str, number: int) -> None:
        digest = hashlib.blake2b(custom_id.encode(), digest_size=16).digest()
        first = self._lines_by_id.setdefault(digest, number)
        if first != number:
            raise LineInvalid(
                "duplicate_custom_id",
                "custom_id",
                f"Line {first} has the same custom_id: '{_shown(custom_id)}'.",
            )

    def _body(self, said: Json) -> Json:
        for name in said:
            if name not in _NAMES:
                raise LineInvalid("unknown_parameter", name, f"Unknown parameter: '{_shown(name)}'.")
        if _required(said, "method") != "POST":
            raise LineInvalid("invalid_method", "method", "'method' can only be POST.")
        if (url := _required(said, "url")) != self._endpoint:
            raise LineInvalid(
                "invalid_url", "url", f"'url' is {_shown(url)}, but the batch's endpoint is {self._endpoint}."
            )
        body = _required(said, "body")
        if not isinstance(body, dict):
            raise LineInvalid("invalid_value", "body", "'body' must be an object.")
        return body

    def _draft(self, body: Json, raw: bytes) -> Draft:
        asked = asking.ask(self._endpoint, body, self._window)
        try:
            draft = drafting.draft(
                asked.wanted, self._caller, asked.spoken, request_hash=hashlib.sha256(raw).digest()
            )
        except JobError as error:
            raise asking.reworded(self._endpoint, error) from error
        if draft.webhook_url is not None:
            self._require_callback(draft.webhook_url)
        return draft

    def _require_callback(self, url: str) -> None:
        if self._callbacks_refused is not None:
            raise self._callbacks_refused
        self._hosts.add(urlsplit(url).netloc)
        if len(self._hosts) > MAX_CALLBACK_HOSTS:
            most = f"the lines of a batch may name {MAX_CALLBACK_HOSTS} hosts"
            raise RequestInvalid("webhook_url", f"'webhook_url' names one host too many: {most}.")
        registering.require_callback(url, "webhook_url")


def _load(line: Line) -> Json:
    if line.is_too_long:
        limit = settings().max_line_bytes
        raise LineInvalid("line_too_long", None, f"The line is longer than a line may be: {limit} bytes.")
    return parsing.load_object(line.raw, what="The line")


def _custom_id(said: Json) -> str:
    custom_id = _required(said, "custom_id")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MAX_CUSTOM_ID_CHARS:
        raise LineInvalid(
            "invalid_custom_id",
            "custom_id",
            f"'custom_id' must be a string of 1 to {MAX_CUSTOM_ID_CHARS} characters.",
        )
    return custom_id


def _required(said: Json, name: str) -> Any:
    if name not in said:
        raise LineInvalid("missing_required_parameter", name, f"Missing required parameter: '{name}'.")
    return said[name]


def _fault(number: int, custom_id: str | None, error: JobError, param: str | None) -> Fault:
    column = error.column if isinstance(error, RequestInvalid) else None
    is_no_json = isinstance(error, RequestInvalid) and param is None
    code = "invalid_json_line" if is_no_json else error.code
    return Fault(number, code, str(error), param, column, custom_id)


def _shown(value: Any) -> str:
    said = str(value)
    return said if len(said) <= MAX_SHOWN_CHARS else said[:MAX_SHOWN_CHARS] + "…"
