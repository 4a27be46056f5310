"""The requests of a body, whatever chunks it comes in."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.anthropic.members import Members
from app.jobs.errors import RequestInvalid

values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def read(body, size=1_000, most=100_000):
    chunks = (body[start : start + size] for start in range(0, len(body), size))
    return [json.loads(member) for member in Members(chunks, most)]


@given(
    st.lists(st.dictionaries(st.text(), values, max_size=3), max_size=4),
    st.integers(1, 40),
    st.sampled_from([None, 2]),
    st.booleans(),
)
def test_every_request_is_found_whatever_it_says_and_wherever_the_body_is_cut(
    requests, size, indent, ascii_only
):
    body = json.dumps({"requests": requests}, indent=indent, ensure_ascii=ascii_only).encode()
    assert read(b" \n" + body + b"\r\n", size) == requests


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'{"requests": {}}',
        b'{"requests": [{}, 7]}',
        b'{"requests": [7]}',
        b'{"requests": [{}',
        b'{"requests": [{"a": "}',
        b'{"requests": [{}]',
        b'{"requests": [{} {}]}',
        b'{"requests": [{},]}',
        b'{"requests": []} {}',
        b'{"requests": [], "model": "m"}',
        b'{"model": "m", "requests": []}',
        b" " * 10_000,
    ],
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_body_that_is_something_else_is_refused(body, size):
    with pytest.raises(RequestInvalid, match="The body must be") as error:
        read(body, size)
    assert error.value.param == "requests"


@pytest.mark.parametrize("size", [3, 1_000])
def test_a_request_that_is_too_large_is_refused_before_it_is_held_whole(size):
    def endless():
        yield b'{"requests": [{}, {"a": "'
        while True:
            yield b"x" * size

    with pytest.raises(RequestInvalid) as error:
        list(Members(endless(), 500))
    assert error.value.param == "requests.1"
