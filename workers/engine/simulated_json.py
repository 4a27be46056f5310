"""The smallest value that a JSON schema accepts, for the simulated engine's structured outputs. It covers the
keywords that schemas for language models use; it is no validator.
"""

from typing import Any

Schema = dict[str, Any] | bool


def smallest_instance(schema: Schema, root: dict[str, Any] | None = None, depth: int = 0) -> Any:
    """Raises `ValueError` for a schema that it cannot satisfy."""
    if depth > 32:
        raise ValueError("The schema has no end.")
    if isinstance(schema, bool):
        return None
    root = schema if root is None else root
    if "$ref" in schema:
        return smallest_instance(_resolve(schema["$ref"], root), root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf", "allOf"):
        if schema.get(choice):
            rest = {key: value for key, value in schema.items() if key != choice}
            options = schema[choice] if choice == "allOf" else schema[choice][:1]
            return smallest_instance(_merged([rest, *options]), root, depth + 1)
    return _of_type(schema, root, depth)


def _resolve(reference: str, root: dict[str, Any]) -> Schema:
    found: Any = root
    for name in reference.removeprefix("#").strip("/").split("/"):
        if not isinstance(found, dict) or (name and name not in found):
            raise ValueError(f"The schema refers to {reference}, which it lacks.")
        found = found[name] if name else found
    schema: Schema = found
    return schema


def _merged(schemas: list[Schema]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for schema in schemas:
        if isinstance(schema, dict):
            properties = {**merged.get("properties", {}), **schema.get("properties", {})}
            required = [*merged.get("required", []), *schema.get("required", [])]
            merged = {**merged, **schema, "properties": properties, "required": required}
    return {key: value for key, value in merged.items() if value not in ({}, [])}


def _of_type(schema: dict[str, Any], root: dict[str, Any], depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "null")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            properties = schema.get("properties", {})
            return {
                name: smallest_instance(properties.get(name, True), root, depth + 1)
                for name in dict.fromkeys(schema.get("required", []))
            }
        case "array":
            item = schema.get("items", True)
            return [smallest_instance(item, root, depth + 1)] * schema.get("minItems", 0)
        case "string":
            return "a" * schema.get("minLength", 0)
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return False
        case "null":
            return None
    raise ValueError(f"The schema asks for a type {kind!r}, which JSON lacks.")


def _number(schema: dict[str, Any]) -> Any:
    low, high = schema.get("minimum", 0), schema.get("maximum", 0)
    if "exclusiveMinimum" in schema:
        low = schema["exclusiveMinimum"] + 1
    return low if low > 0 or "minimum" in schema else min(0, high)
