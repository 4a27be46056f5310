"""A client's JSON schema: every limit at its edge, each refusal naming the place and the limit."""

import json
import time

import pytest
from pydantic import BaseModel, Field

from app.jobs import patterns, schemas
from app.jobs.patterns import written_out
from app.jobs.schemas import check_parameters, check_schema


def thing(**properties):
    return {"type": "object", "properties": properties}


def nested(levels):
    value = {}
    for _ in range(levels - 1):
        value = {"not": value}
    return value


def of_size(size):
    empty = len(json.dumps({"title": ""}))
    return {"title": "x" * (size - empty)}


def bounded(keyword, value):
    return thing(a={keyword: value})


def matching(pattern):
    return thing(a={"type": "string", "pattern": pattern})


def spread(count, size):
    """`count` values in two enums, `size` characters each."""
    values = [f"{number:0{size}}" for number in range(count)]
    return thing(a={"enum": values[: count // 2]}, b={"enum": values[count // 2 :]})


BOUND = schemas.MAX_SCHEMA_BOUND
LIMITS = [
    ("depth", nested, schemas.MAX_SCHEMA_DEPTH),
    ("bytes", of_size, schemas.MAX_SCHEMA_BYTES),
    ("properties", lambda n: thing(a=thing(**{f"p{i}": True for i in range(n - 1)})), 1_000),
    ("patternProperties", lambda n: {"patternProperties": {f"p{i}": True for i in range(n)}}, 1_000),
    ("values", lambda n: spread(n, 4), schemas.MAX_SCHEMA_VALUES),
    ("constants", lambda n: {"enum": [1] * (n - 1), "not": {"const": 1}}, schemas.MAX_SCHEMA_VALUES),
    ("value characters", lambda n: {"enum": ["x" * (n - 5), "y" * 5]}, schemas.MAX_SCHEMA_VALUE_CHARS),
    ("alternatives", lambda n: {"anyOf": [{"oneOf": [True] * (n - 1)}]}, schemas.MAX_SCHEMA_ALTERNATIVES),
    ("pattern length", lambda n: matching("x" * n), patterns.MAX_PATTERN_LENGTH),
    ("pattern repetitions", lambda n: matching(f"a{{{n}}}"), patterns.MAX_PATTERN_CHARS),
    ("pattern of names", lambda n: {"patternProperties": {f"b{{{n}}}": True}}, patterns.MAX_PATTERN_CHARS),
    *(
        (keyword, lambda n, keyword=keyword: bounded(keyword, n), BOUND)
        for keyword in ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
    ),
]


@pytest.mark.parametrize(("make", "limit"), [row[1:] for row in LIMITS], ids=[row[0] for row in LIMITS])
def test_a_limit_holds_at_its_edge_and_is_named(make, limit):
    assert check_schema(make(limit)) == make(limit)
    with pytest.raises(ValueError, match=rf"{limit + 1}.*; the limit is {limit}$"):
        check_schema(make(limit + 1))


PLACES = [
    (thing(a={"items": {"maxItems": BOUND + 1}}), "#/properties/a/items/maxItems is"),
    ({"anyOf": [True, {"pattern": "x" * 600}]}, "#/anyOf/1/pattern is"),
    (thing(a={"enum": [1] * 900}, b={"enum": [1] * 101}), "counted up to #/properties/a/enum"),
    ({"$defs": {"a/b": {"minLength": -1}}}, "#/$defs/a~1b/minLength must be a whole number"),
]


@pytest.mark.parametrize(("schema", "words"), PLACES)
def test_a_refusal_names_the_place(schema, words):
    with pytest.raises(ValueError) as refusal:
        check_schema(schema)
    assert words in str(refusal.value)


REFUSED = [
    {"$ref": "https://example.com/schema"},
    {"$ref": "other.json#/a"},
    {"$ref": "#name"},
    {"$ref": 7},
    {"$ref": "#/$defs/missing", "$defs": {}},
    {"$ref": "#/anyOf/0", "anyOf": [True]},
    thing(a={"$ref": "#/$defs/a", "$id": "https://example.com/a"}),
    {"$dynamicRef": "#a"},
    {"$recursiveRef": "#"},
    {"properties": ["a"]},
    {"properties": {"a": "string"}},
    {"anyOf": {"a": True}},
    {"items": "string"},
    {"enum": "abc"},
    {"pattern": 5},
    {"minItems": True},
    {"minItems": 1.5},
    {"maxLength": "9"},
    {"maxItems": 10**1_000},
]


@pytest.mark.parametrize("schema", REFUSED, ids=lambda schema: repr(schema)[:40])
def test_what_a_grammar_would_not_follow_is_refused(schema):
    with pytest.raises(ValueError) as refusal:
        check_schema(schema)
    assert len(str(refusal.value)) < 300


def test_a_schema_that_only_a_reference_reaches_is_read_too():
    with pytest.raises(ValueError, match="the limit is"):
        check_schema({"$ref": "#/hidden/deep", "hidden": {"deep": {"maxItems": BOUND + 1}}})


def test_names_and_values_that_look_like_keywords_are_no_keywords():
    check_schema(
        thing(
            **{
                "$ref": {"type": "string"},
                "pattern": {"const": {"$ref": "nowhere", "maxItems": "many"}},
                "enum": {"default": {"pattern": 5}},
                "$dynamicRef": {"examples": [{"properties": 1}]},
            }
        )
    )


def test_a_schema_may_refer_to_itself():
    check_schema(thing(left={"$ref": "#"}, right={"$ref": "#/properties/left"}))


def test_deep_nesting_costs_no_recursion():
    value = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match="is 100002 levels deep; the limit is 16"):
        check_schema({"const": value})


class Address(BaseModel):
    street: str = Field(max_length=100)
    number: int = Field(ge=1)


class Person(BaseModel):
    name: str = Field(min_length=1, max_length=64, pattern=r"^[A-Z][a-z]+$")
    addresses: list[Address] = Field(max_length=10)
    parent: "Person | None" = None


def test_what_pydantic_writes_passes():
    check_parameters(Person.model_json_schema() | {"type": "object"})
    check_parameters(Address.model_json_schema())


@pytest.mark.parametrize(
    "schema", [{"a": {}}, {"type": "string"}, {"type": ["object", "null"]}, {"type": None}]
)
def test_a_function_takes_an_object(schema):
    with pytest.raises(ValueError, match="is of type"):
        check_parameters(schema)


SIZES = [
    ("", 0),
    ("abc", 3),
    ("^a{3}$", 3),
    ("a{2,5}b", 6),
    ("a{7,}", 7),
    ("a{0}", 1),
    ("(ab){10}", 20),
    ("((a{10}){10}){10}", 1_000),
    ("(?:a|b{3}){2}c*", 9),
    ("a{2}{3}", 6),
    (r"([0-9]{1,3}\.){3}[0-9]{1,3}", 15),
    (r"[^\]{9}]{4}", 4),
    (r"[]{9}]{4}", 4),
    (r"\(\{3\}a{2}?", 6),
    ("(?<name>a{4})(?P<n>b)", 5),
    ("(?=.*[a-z]).{8,64}", 66),
    ("(a{2}", 2),
    ("a)){2}", 2),
    ("[a{5}", 6),
    ("{5}", 0),
    ("a{9" + "9" * 400 + "}", int("9" * 401)),
]


@pytest.mark.parametrize(("pattern", "size"), SIZES, ids=[pattern[:20] for pattern, _ in SIZES])
def test_a_pattern_counts_with_its_repetitions_written_out(pattern, size):
    assert written_out(pattern) == size


def test_the_most_that_fits_in_a_schema_is_judged_at_once():
    open_classes = thing(**{f"p{i}": {"pattern": "[" * 500, "$ref": f"#/properties/p{i}"} for i in range(58)})
    started = time.process_time()
    check_schema(open_classes)
    assert written_out("(" * 250 + "a" + "){9}" * 60) == 9**60
    assert time.process_time() - started < 2
