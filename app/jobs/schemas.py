"""JSON schemas that clients send, bounded before anything reads them: compiling one into a grammar costs time
and memory that its size alone does not show. What passes here is compiled by the worker, apart from its engine.
"""

import json
from typing import Any

MAX_SCHEMA_BYTES = 32_768
MAX_SCHEMA_DEPTH = 16


def check_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema. Raises `ValueError` with what is too large, and the limit."""
    if (size := len(json.dumps(schema))) > MAX_SCHEMA_BYTES:
        raise ValueError(f"is {size} bytes; the limit is {MAX_SCHEMA_BYTES}")
    if (depth := _depth(schema)) > MAX_SCHEMA_DEPTH:
        raise ValueError(f"is {depth} levels deep; the limit is {MAX_SCHEMA_DEPTH}")
    return schema


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
