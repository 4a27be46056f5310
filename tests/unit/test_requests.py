"""Every limit of a request, at its edge."""

import pytest
from pydantic import ValidationError

from app.jobs import requests, schemas
from app.jobs.requests import JobRequest


def ask(**body):
    return JobRequest(**{"model": "m", "input": "hi", **body})


def schema(value):
    return {"format": {"type": "json_schema", "schema": value}}


def nested(levels):
    value = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


EDGES = [
    ("temperature", 2, 2.01),
    ("temperature", 0, -0.01),
    ("top_p", 1, 1.01),
    ("top_p", 0.01, 0),
    ("max_output_tokens", 1, 0),
    ("presence_penalty", -2, -2.1),
    ("frequency_penalty", 2, 2.1),
    ("repetition_penalty", 10, 11),
    ("logprobs", 20, 21),
    ("seed", 2**63 - 1, 2**63),
    ("stop", ["x"] * requests.MAX_STOP_STRINGS, ["x"] * (requests.MAX_STOP_STRINGS + 1)),
    ("stop", "x" * requests.MAX_STOP_CHARS, "x" * (requests.MAX_STOP_CHARS + 1)),
    ("stop", "x", ""),
    ("metadata", {f"k{n}": "v" for n in range(16)}, {f"k{n}": "v" for n in range(17)}),
    ("metadata", {"k" * 64: "v"}, {"k" * 65: "v"}),
    ("metadata", {"k": "v" * 512}, {"k": "v" * 513}),
    ("metadata", {"k": "v"}, {"k": 1}),
    ("timeouts", {"total_seconds": 7 * 86_400}, {"total_seconds": 7 * 86_400 + 1}),
    ("timeouts", {"first_token_seconds": 0.1}, {"first_token_seconds": 0}),
    ("expires_after_seconds", 1, 0),
    ("input", "x" * requests.MAX_INPUT_CHARS, "x" * (requests.MAX_INPUT_CHARS + 1)),
    ("input", [{"role": "user", "content": "x"}], []),
    ("input", "x", ""),
    ("input", [{"role": "system", "content": "x"}], [{"role": "robot", "content": "x"}]),
    ("text", schema(nested(schemas.MAX_SCHEMA_DEPTH)), schema(nested(schemas.MAX_SCHEMA_DEPTH + 1))),
    ("text", schema({"a": "x" * 32_000}), schema({"a": "x" * 33_000})),
    ("kind", "generation", "agent"),
    ("tier", "batch", "express"),
]


@pytest.mark.parametrize(("field", "good", "bad"), EDGES)
def test_a_limit_holds_at_its_edge(field, good, bad):
    ask(**{field: good})
    with pytest.raises(ValidationError):
        ask(**{field: bad})


def test_unknown_fields_are_refused():
    with pytest.raises(ValidationError):
        ask(wished_for=1)


def test_a_minimum_above_the_maximum_is_refused():
    with pytest.raises(ValidationError, match="min_output_tokens"):
        ask(max_output_tokens=4, min_output_tokens=5)


def test_a_structured_answer_takes_no_stop_strings():
    with pytest.raises(ValidationError, match="stop"):
        ask(stop="x", text={"format": {"type": "json_object"}})


def test_instructions_come_first_and_developers_are_the_system():
    asked = ask(
        instructions="Be brief.",
        input=[
            {
                "role": "developer",
                "content": [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}],
            }
        ],
    )
    assert asked.prompt.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": "ab"},
    ]


def test_a_request_comes_back_from_the_database_as_it_went_in():
    asked = ask(text=schema({"type": "object"}), timeouts={"total_seconds": 5})
    assert JobRequest.model_validate(asked.model_dump(mode="json", by_alias=True)) == asked
