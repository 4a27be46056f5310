"""JSON of a client's: what is stored must be what was written, and what is wrong is named with where."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.jobs.errors import RequestInvalid
from app.surfaces.parsing import MAX_DEPTH, load_object

TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=20,
)


def refusal(raw, **options):
    with pytest.raises(RequestInvalid) as error:
        load_object(raw, **options)
    return error.value


@given(st.dictionaries(TEXT, JSON, max_size=4), st.sampled_from([None, 1]), st.booleans())
def test_an_object_is_read_as_it_was_written(value, indent, escaped):
    raw = json.dumps(value, indent=indent, ensure_ascii=escaped).encode()
    assert load_object(raw) == orjson.loads(raw)


@pytest.mark.parametrize(
    ("raw", "column", "message"),
    [
        (b'{"a": }', 7, "is not valid JSON"),
        ('{"é": "日本", }'.encode(), 11, "is not valid JSON"),
        (b'{"a": NaN}', 7, "is not valid JSON"),
        (b'{"a": 1} x', 10, "is not valid JSON"),
        (b'{"a": "b"', 10, "is not valid JSON"),
        (b"", 1, "is not valid JSON"),
        ('{"é": "'.encode() + b'\xff"}', 8, "is not valid JSON"),
        (b'{"a": ["\\ud800"]}', 9, "'a.0' contains half of a surrogate pair"),
        (b'{"a":\n 1,}', None, "is not valid JSON"),
    ],
)
def test_what_is_no_json_is_shown_by_its_column(raw, column, message):
    error = refusal(raw)
    assert (error.column, error.code) == (column, "invalid_value")
    assert message in str(error)


@pytest.mark.parametrize("raw", [b"[]", b"1", b"null", b'"{}"'])
def test_only_an_object_will_do(raw):
    assert str(refusal(raw, what="The line")) == "The line must be a JSON object."


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a": 1, "a": 1}',
        b'{"a":1,"b":{"c":1},"a":1}',
        b'{"b": [{"a" : 1, "a"\t:2}]}',
        b'{"a": "\\":", "a": 2}',
        b'{"\\u0061": 1, "a": 2}',
    ],
)
def test_a_name_given_twice_is_refused(raw):
    error = refusal(raw)
    assert (error.param, str(error)) == ("a", "'a' is given twice.")


@pytest.mark.parametrize("raw", [b'{"a": "\\":", "b": ":"}', b'{"a": {"a": [{"a": 1}, {"a": 1}]}}'])
def test_what_only_looks_like_a_name_given_twice_is_fine(raw):
    assert load_object(raw) == orjson.loads(raw)


def test_a_long_number_is_no_reason_to_fail():
    raw = b'{"a": "\\":", "b": 1%s}' % (b"0" * 300)
    assert load_object(raw) == {"a": '":', "b": 1e300}


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b'{"a": "x\\u0000"}', "a"),
        (b'{"a": {"b": [1, "\\u0000"]}}', "a.b.1"),
        (b'{"a": {"\\u0000b": 1}}', "a"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_its_place(raw, param):
    error = refusal(raw)
    assert error.param == param
    assert "U+0000" in str(error)


def test_an_escaped_backslash_before_u0000_is_text():
    assert load_object(b'{"a": "\\\\u0000"}') == {"a": "\\u0000"}


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"x": ', "}")])
def test_nesting_ends_at_its_limit(opening, closing):
    def nested(levels, leaf):
        return f'{{"deep": {opening * (levels - 1)}{leaf}{closing * (levels - 1)}}}'.encode()

    assert load_object(nested(MAX_DEPTH - 1, "1"))
    assert load_object(nested(MAX_DEPTH - 1, "{}"))
    error = refusal(nested(MAX_DEPTH, "1"), what="The line")
    assert error.param == "deep"
    assert str(error) == f"The line is nested too deeply; the limit is {MAX_DEPTH} levels."
    assert refusal(nested(1_000, "1")).param == "deep"
