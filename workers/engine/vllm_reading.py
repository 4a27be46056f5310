"""vLLM's own parsers of what models write (`vllm.parser`), behind our `OutputReader`: reasoning and calls out
of tokens, and the grammar that holds a model to the calls it must make. Part of the `vllm` engine.
"""

import json
import logging
import threading
from collections.abc import Sequence
from typing import Any, Final

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser import ParserManager
from vllm.sampling_params import StructuredOutputsParams
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.tool_parsers.tool_strict_level import ToolStrictLevel
from vllm.v1.structured_output.backend_xgrammar import has_xgrammar_unsupported_json_features

from app.jobs import parts
from app.jobs.parts import Part
from app.jobs.prompts import ToolUse
from config.catalogue import ModelSpec
from workers.engine import PromptRejected, Sampling
from workers.engine.calls import tool_call_id
from workers.engine.decoding import Vocabulary

log = logging.getLogger(__name__)

ANY_OBJECT: Final = {"type": "object"}


class VllmReading:
    """The parsers of one model. Safe from any thread."""

    def __init__(
        self, spec: ModelSpec, model_config: Any, vocabulary: Vocabulary, eos_ids: frozenset[int]
    ) -> None:
        """Raises `TypeError` where vLLM has no such parsers, or they cannot read this model's tokens."""
        self._model_config = model_config
        self._vocabulary = vocabulary
        self._markers = vocabulary.special - eos_ids  # special tokens that parsers look for
        # Its own tokenizer, which remembers its vocabulary: each parser asks for all of it.
        self._tokenizer = cached_tokenizer_from_config(model_config)
        self._lock = threading.Lock()
        self._tool_parser, self._reasoning_parser = (
            ParserManager.get_parser(
                tool_parser_name=tool_parser,
                reasoning_parser_name=reasoning_parser,
                enable_auto_tools=True,
                model_name=spec.name,
                tokenizer=self._tokenizer,
            )
            for tool_parser, reasoning_parser in (
                (spec.tool_parser or None, spec.reasoning_parser or None),
                (None, spec.reasoning_parser or None),
            )
        )

    def reader(self, tool_use: ToolUse | None, prompt_ids: Sequence[int], job_id: str) -> "VllmReader | None":
        parser_class = self._reasoning_parser if tool_use is None else self._tool_parser
        if parser_class is None:
            return None
        request = _request(tool_use)
        return VllmReader(self, self._parser(parser_class, request), request, prompt_ids, job_id)

    def structured_outputs(self, sampling: Sampling) -> Any:
        """The grammar that the output must follow; None where it is free. Raises `PromptRejected` for tools
        that vLLM has no grammar for.
        """
        wanted = format_of(sampling)
        use = sampling.tool_use
        if use is None or self._tool_parser is None or not sampling.is_structured:
            return wanted
        request = _request(use)
        request.structured_outputs = None if use.is_forced else wanted
        parser = self._parser(self._tool_parser, request)
        if wanted is not None:
            # Else vLLM lets the format alone stand: the model could no longer call anything.
            parser.tool_strict_level = ToolStrictLevel.FUNCTION
        try:
            found = parser.adjust_request(request).structured_outputs
        except (ValueError, TypeError, KeyError) as error:
            raise PromptRejected(f"The engine cannot hold the model to these tools: {error}") from error
        if found is not None and found.structural_tag is not None:
            return StructuredOutputsParams(structural_tag=_compact(found.structural_tag))
        return found

    def _parser(self, parser_class: Any, request: Any) -> Any:
        with self._lock:
            return parser_class(self._tokenizer, request.tools, model_config=self._model_config)

    def markers(self, token_ids: Sequence[int]) -> list[str]:
        """The names of those that show no text: parsers know them by these."""
        if self._markers.isdisjoint(token_ids):
            return []
        return [self._vocabulary.token_text(token) for token in token_ids if token in self._markers]


class VllmReader:
    """An `OutputReader`. A parser that fails leaves the rest as plain text."""

    def __init__(
        self, reading: VllmReading, parser: Any, request: Any, prompt_ids: Sequence[int], job_id: str
    ) -> None:
        self._reading = reading
        self._parser = parser
        self._request = request
        self._prompt_ids = list(prompt_ids)
        self._job_id = job_id
        self._indexes: dict[int, int] = {}  # vLLM's number of a call: ours
        self._tokens = 0  # since something was found
        self._unsaid = ""  # text since the last part
        self._is_plain = True  # all parts so far are text
        self._markers: set[str] = set()  # that the parser was told of

    @property
    def held(self) -> int:
        return len(self._unsaid)

    def feed(self, text: str, token_ids: Sequence[int]) -> list[Part]:
        self._tokens += len(token_ids)
        if self._parser is None:
            return [parts.text(text)] if text else []
        self._unsaid += text
        markers = self._reading.markers(token_ids)
        self._markers.update(markers)
        message = self._parse("".join(markers) + text, list(token_ids), is_finished=False)
        if self._parser is None:
            rest, self._unsaid = self._unsaid if self._is_plain else text, ""
            return [parts.text(rest)] if rest else []
        return self._parts(message) if message is not None else []

    def finish(self) -> list[Part]:
        if self._parser is None:
            return []
        message = self._parse("", [], is_finished=True)
        found = self._parts(message) if message is not None else []
        # What a parser kept, for it looked like the beginning of its markup.
        return [*found, parts.text(self._unsaid)] if self._is_plain and self._unsaid else found

    def _parse(self, text: str, token_ids: list[int], *, is_finished: bool) -> Any:
        try:
            return self._parser.parse_delta(
                text, token_ids, self._request, self._prompt_ids, finished=is_finished
            )
        except Exception:
            # Parsers raise whatever their models' slips lead to.
            log.exception("vLLM's parser failed; the rest of this output is plain text.")
            self._parser = None
            return None

    def _parts(self, message: Any) -> list[Part]:
        found: list[Part] = []
        if thought := self._shown(message.reasoning):
            found.append(parts.reasoning(thought, self._tokens))
        if said := self._shown(message.content):
            found.append(parts.text(said))
        for call in message.tool_calls or ():
            found += self._call(call)
        if found:
            self._tokens = 0
            self._note(found)
        return found

    def _shown(self, text: str | None) -> str:
        """What a parser did not take for a marker shows no text all the same."""
        shown = text or ""
        for marker in self._markers:
            shown = shown.replace(marker, "")
        return shown

    def _note(self, found: Sequence[Part]) -> None:
        for part in found:
            is_text = part["type"] == parts.TEXT
            self._is_plain = self._is_plain and is_text
            self._unsaid = self._unsaid.partition(part["text"])[2] if is_text else ""

    def _call(self, call: Any) -> list[Part]:
        """Where the model may make one call only, its further ones are not read."""
        found: list[Part] = []
        function = call.function
        if function is None:
            return found
        if function.name and call.index not in self._indexes:
            self._indexes[call.index] = len(self._indexes)
            index = self._indexes[call.index]
            found.append(parts.call(index, tool_call_id(self._job_id, index), function.name))
        if function.arguments and call.index in self._indexes:
            found.append(parts.arguments(self._indexes[call.index], function.arguments))
        is_parallel = self._request.parallel_tool_calls is not False
        return [part for part in found if is_parallel or part["index"] == 0]


def _request(use: ToolUse | None) -> Any:
    """As vLLM's parsers take it; they read nothing of its messages. Raises `PromptRejected`."""
    body: dict[str, Any] = {"messages": [{"role": "user", "content": ""}]}
    if use is not None:
        named = {"type": "function", "function": {"name": use.choice}}
        body |= {
            "tools": [_tool(tool, use) for tool in use.tools],
            "tool_choice": named if use.is_named else use.choice,
            "parallel_tool_calls": use.is_parallel,
        }
    try:
        return ChatCompletionRequest.model_validate(body)
    except ValueError as error:
        raise PromptRejected("The engine does not understand these tools.") from error


def _tool(tool: dict[str, Any], use: ToolUse) -> dict[str, Any]:
    """A call that is forced keeps to its function's parameters, and to an object at least where the grammar
    knows not all that they ask for.
    """
    function = tool["function"]
    is_strict = function["name"] in use.strict
    if use.is_forced and not is_strict and has_xgrammar_unsupported_json_features(function["parameters"]):
        function = {**function, "parameters": ANY_OBJECT}
    return {"type": "function", "function": {**function, "strict": is_strict or use.is_forced}}


def format_of(sampling: Sampling) -> Any:
    """What its `text.format` asks for, tools apart."""
    if sampling.json_schema is not None:
        return StructuredOutputsParams(json=sampling.json_schema)
    return StructuredOutputsParams(json_object=True) if sampling.json_object else None


def _compact(structural_tag: str) -> str:
    """One space at a time: a small model can go on with spaces without end."""

    def visit(node: Any) -> None:
        if isinstance(node, list):
            for child in node:
                visit(child)
        elif isinstance(node, dict):
            if node.get("type") == "json_schema" and "json_schema" in node:
                node["max_whitespace_cnt"] = 1
                return
            for child in node.values():
                visit(child)

    tag = json.loads(structural_tag)
    visit(tag)
    return json.dumps(tag)
