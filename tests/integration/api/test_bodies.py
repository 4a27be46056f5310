"""What JSON allows and a database, a log or a client does not."""

import pytest


def post(alice, body, **headers):
    return alice("POST", "/v1/jobs", data=body, headers={"Content-Type": "application/json", **headers})


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"model": "faulty", "input": "a\\u0000b"}', "input"),
        (b'{"model": "faulty", "input": [{"role": "user", "content": "\\u0000"}]}', "input.0.content"),
        (b'{"model": "faulty", "input": "x", "metadata": {"k": "\\u0000"}}', "metadata.k"),
        (b'{"model": "faulty", "input": "x", "metadata": {"k\\u0000": "v"}}', "metadata"),
        (b'{"model": "faulty", "input": "\\ud83d"}', "input"),
        (b'{"model": "faulty", "input": [{"role": "user", "content": "\\udc00"}]}', "input.0.content"),
        (b'{"model": "faulty", "input": "x", "model": "simulated"}', "model"),
        (b'{"model": "faulty", "input": "x", "metadata": {"k": "1", "k": "2"}}', "k"),
    ],
)
def test_a_string_that_cannot_be_kept_as_it_is_is_refused_by_name(alice, body, param):
    answer = post(alice, body)
    assert answer.status_code == 400, answer.json
    assert answer.json["error"]["param"] == param


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b'{"model": "faulty", "input": "x", "temperature": NaN}',
        b'{"model": "faulty", "input": "x", "temperature": Infinity}',
        b'\xef\xbb\xbf{"model": "faulty", "input": "x"}',
        b'{"model": "faulty", "input": "\xff"}',
        b'{"model": "faulty", "input": "raw \x00"}',
        b'{"a": ' * 100_000,
        b'{"model": "faulty", "input": ' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"model": "faulty", "input": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"model": "faulty", "input": "x", "seed": ' + b"9" * 5000 + b"}",
        b'{"model": "faulty", "input": "x", "seed": 1e400}',
    ],
    ids=lambda body: repr(body[:40]),
)
def test_a_body_that_is_not_a_sane_json_object_is_refused(alice, body):
    answer = post(alice, body)
    assert answer.status_code == 400, answer.json
    assert answer.json["error"]["type"] == "invalid_request_error"


def test_a_schema_deeper_than_the_limit_is_refused(alice):
    schema = {}
    for _ in range(60):
        schema = {"properties": schema}
    answer = alice.submit(text={"format": {"type": "json_schema", "schema": schema}})
    assert answer.status_code == 400


def test_text_that_only_looks_odd_is_accepted(alice):
    body = '{"model": "faulty", "input": "\\\\u0000 \\ud83d\\ude00 \u2028 é"}'.encode()
    assert post(alice, body).status_code == 202


def test_a_body_beyond_the_limit_is_refused_with_413(alice):
    answer = post(alice, b'{"input": "' + b"x" * 2_000_001 + b'"}')
    assert answer.status_code == 413
    assert answer.json["error"]["code"] == "request_entity_too_large"


@pytest.mark.parametrize("path", ["/v1/jobs?model=%00", "/v1/jobs?metadata[k]=%00", "/v1/jobs?metadata[%00]=x"])
def test_a_nul_in_the_query_string_is_refused(alice, path):
    assert alice.get(path).status_code == 400
