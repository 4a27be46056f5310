"""JSON schemas that clients send, bounded before anything reads them: compiling one into a grammar costs time
and memory that its size alone does not show. What passes here is compiled by the worker, apart from its engine.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from app.jobs.patterns import MAX_PATTERN_CHARS, MAX_PATTERN_LENGTH, written_out

MAX_SCHEMA_BYTES: Final = 32_768
MAX_SCHEMA_DEPTH: Final = 16
MAX_SCHEMA_PROPERTIES: Final = 1_000  # this and the next three: in the whole schema
MAX_SCHEMA_VALUES: Final = 1_000  # of enum and const
MAX_SCHEMA_VALUE_CHARS: Final = 15_000
MAX_SCHEMA_ALTERNATIVES: Final = 256  # of anyOf, oneOf and allOf
MAX_SCHEMA_BOUND: Final = 100_000  # minItems, maxLength and the like

_BOUNDS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED_SCHEMAS = (*_ALTERNATIVES, "prefixItems")
_ONE_SCHEMA = (
    *("additionalItems", "additionalProperties", "contains", "else", "if", "items", "not"),
    *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
)
# A grammar compiler takes no notice of these and lets any value through.
_UNHEARD = ("$dynamicRef", "$recursiveRef")

_Place = tuple[str, ...]


def check_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema. Raises `ValueError` with what is too large or means nothing here, where, and the limit."""
    if (depth := _depth(schema)) > MAX_SCHEMA_DEPTH:
        raise ValueError(f"is {depth} levels deep; the limit is {MAX_SCHEMA_DEPTH}")
    if (size := len(json.dumps(schema))) > MAX_SCHEMA_BYTES:
        raise ValueError(f"is {size} bytes; the limit is {MAX_SCHEMA_BYTES}")
    _Inspection(schema).run()
    return schema


def check_parameters(schema: dict[str, Any]) -> dict[str, Any]:
    """As `check_schema`, for what a function takes: an object. An empty schema stands for no arguments."""
    if schema and schema.get("type") != "object":
        raise ValueError(f'is of type {json.dumps(schema.get("type"))[:64]}; the only one here is "object"')
    return check_schema(schema)


def _depth(value: Any) -> int:
    """Nesting of a JSON value, without recursion: the value is a client's."""
    deepest, level = 0, [value]
    while level:
        deepest += 1
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
    return deepest


@dataclass
class _Inspection:
    """One walk over every schema in a schema, those that only a `$ref` reaches included."""

    root: dict[str, Any]
    totals: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        waiting: list[tuple[_Place, Any]] = [((), self.root)]
        seen: set[int] = set()
        while waiting:
            place, node = waiting.pop()
            if isinstance(node, bool) or id(node) in seen:
                continue
            _require(isinstance(node, dict), f"{_at(place)} is no schema: it must be an object, true or false")
            seen.add(id(node))
            self._check(place, node)
            waiting.extend(_children(place, node))
            if "$ref" in node:
                waiting.append(self._target(place, node["$ref"]))

    def _check(self, place: _Place, node: dict[str, Any]) -> None:
        for keyword in _UNHEARD:
            _require(keyword not in node, f"{_at(place, keyword)} is not supported; use $ref")
        _require(not place or "$id" not in node, f"{_at(place, '$id')} is not supported below the root")
        for keyword in _NAMED_SCHEMAS:
            _require(isinstance(node.get(keyword, {}), dict), f"{_at(place, keyword)} must be an object")
        for keyword in _LISTED_SCHEMAS:
            _require(isinstance(node.get(keyword, []), list), f"{_at(place, keyword)} must be an array")
        for keyword in _BOUNDS:
            if keyword in node:
                _check_bound(_at(place, keyword), node[keyword])
        self._check_patterns(place, node)
        self._check_values(place, node)
        for keyword in ("properties", "patternProperties"):
            self._add("properties", len(node.get(keyword, ())), MAX_SCHEMA_PROPERTIES, _at(place, keyword))
        for keyword in _ALTERNATIVES:
            self._add("alternatives", len(node.get(keyword, ())), MAX_SCHEMA_ALTERNATIVES, _at(place, keyword))

    def _check_patterns(self, place: _Place, node: dict[str, Any]) -> None:
        if "pattern" in node:
            _check_pattern(_at(place, "pattern"), node["pattern"])
        for pattern in node.get("patternProperties", ()):
            _check_pattern(_at(place, "patternProperties"), pattern)

    def _check_values(self, place: _Place, node: dict[str, Any]) -> None:
        for keyword in ("enum", "const"):
            if keyword not in node:
                continue
            where = _at(place, keyword)
            values = node[keyword] if keyword == "enum" else [node[keyword]]
            _require(isinstance(values, list), f"{where} must be an array")
            chars = sum(len(value if isinstance(value, str) else json.dumps(value)) for value in values)
            self._add("values of enum and const", len(values), MAX_SCHEMA_VALUES, where)
            self._add("characters of enum and const", chars, MAX_SCHEMA_VALUE_CHARS, where)

    def _add(self, what: str, count: int, limit: int, where: str) -> None:
        total = self.totals[what] = self.totals.get(what, 0) + count
        if total > limit:
            raise ValueError(f"is {total} {what} in all, counted up to {where}; the limit is {limit}")

    def _target(self, place: _Place, reference: Any) -> tuple[_Place, Any]:
        where = _at(place, "$ref")
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise ValueError(f"{where} is {_shown(reference)}; it must be # or start with #/")
        keys = tuple(_plain(key) for key in reference.split("/")[1:])
        node: Any = self.root
        for key in keys:
            if not isinstance(node, dict) or key not in node:
                raise ValueError(f"{where} is {_shown(reference)}, which is not in this schema")
            node = node[key]
        return keys, node


def _children(place: _Place, node: dict[str, Any]) -> Iterator[tuple[_Place, Any]]:
    for keyword in _NAMED_SCHEMAS:
        for name, child in node.get(keyword, {}).items():
            yield (*place, keyword, name), child
    for keyword in _LISTED_SCHEMAS:
        for index, child in enumerate(node.get(keyword, ())):
            yield (*place, keyword, str(index)), child
    for keyword in _ONE_SCHEMA:
        child = node.get(keyword, True)
        if keyword == "items" and isinstance(child, list):  # before JSON Schema 2020: one for each place
            yield from (((*place, keyword, str(index)), one) for index, one in enumerate(child))
        else:
            yield (*place, keyword), child


def _require(holds: object, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _check_bound(where: str, bound: Any) -> None:
    is_whole = isinstance(bound, int) and not isinstance(bound, bool) and bound >= 0
    _require(is_whole, f"{where} must be a whole number from 0 to {MAX_SCHEMA_BOUND}")
    if bound > MAX_SCHEMA_BOUND:
        raise ValueError(f"{where} is {_shown(bound)}; the limit is {MAX_SCHEMA_BOUND}")


def _check_pattern(where: str, pattern: Any) -> None:
    _require(isinstance(pattern, str), f"{where} must be a string")
    if (length := len(pattern)) > MAX_PATTERN_LENGTH:
        raise ValueError(f"{where} is {length} characters; the limit is {MAX_PATTERN_LENGTH}")
    if (chars := written_out(pattern)) > MAX_PATTERN_CHARS:
        raise ValueError(
            f"{where} is {_shown(chars)} characters with its repetitions written out; "
            f"the limit is {MAX_PATTERN_CHARS}"
        )


def _at(place: _Place, *keywords: str) -> str:
    """A JSON pointer, short enough to show."""
    keys = [key.replace("~", "~0").replace("/", "~1") for key in (*place, *keywords)]
    return "/".join(["#", *(key if len(key) <= 64 else f"{key[:64]}…" for key in keys)])


def _plain(key: str) -> str:
    return key.replace("~1", "/").replace("~0", "~")


def _shown(value: Any) -> str:
    """A client's value in a message. A number of thousands of digits is not written out: that is slow."""
    if isinstance(value, int) and value.bit_length() > 64:
        return "more than 2^64"
    return json.dumps(value, ensure_ascii=False)[:128]
