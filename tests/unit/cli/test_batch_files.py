"""Files of batches, read and written."""

import pytest

from app.cli.batch_files import endpoint_of, save
from app.cli.errors import CommandFailed


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"url": "/v1/responses"}\n{"url": "/v1/jobs"}\n', "/v1/responses"),
        (b'\xef\xbb\xbf{"url": "/v1/responses"}', "/v1/responses"),
        (b"not JSON\n", "/v1/chat/completions"),
        (b"[1]\n", "/v1/chat/completions"),
        (b'{"url": 3}\n', "/v1/chat/completions"),
        (b"", "/v1/chat/completions"),
    ],
)
def test_the_first_line_says_for_what_the_file_is(tmp_path, content, expected):
    file = tmp_path / "lines.jsonl"
    file.write_bytes(content)
    assert endpoint_of(file) == expected


def test_a_file_that_is_not_there_is_said_in_a_sentence(tmp_path):
    with pytest.raises(CommandFailed, match=r"missing\.jsonl cannot be read: No such file"):
        endpoint_of(tmp_path / "missing.jsonl")


def broken():
    yield b"one\n"
    raise CommandFailed("The connection broke.")


def test_a_download_that_breaks_leaves_the_file_as_it_was(tmp_path):
    file = tmp_path / "out.jsonl"
    file.write_bytes(b"before\n")
    with pytest.raises(CommandFailed):
        save(broken(), file)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"before\n"]
    save(iter([b"one\n", b"two\n"]), file)
    assert file.read_bytes() == b"one\ntwo\n"


def test_output_goes_to_a_pipe_as_it_is(capfdbinary):
    save(iter([b"a\x1b[31m\xff", b"\n"]), None)
    assert capfdbinary.readouterr().out == b"a\x1b[31m\xff\n"
