"""Lines out of bytes."""

from hypothesis import given
from hypothesis import strategies as st

from app.batches.reading import Line, lines


def numbered(*chunks: bytes, most: int = 100) -> list[tuple[int, bytes]]:
    return [(line.number, line.raw) for line in lines(chunks, most)]


def test_the_last_line_needs_no_newline():
    assert numbered(b"a\nb") == numbered(b"a\nb\n") == [(1, b"a"), (2, b"b")]


def test_lines_that_say_nothing_are_passed_over_and_counted():
    assert numbered(b"\na\n \t\r\n\nb\n") == [(2, b"a"), (5, b"b")]


def test_windows_ends_of_lines_are_no_content():
    assert numbered(b"a\r\nb\r\n") == [(1, b"a"), (2, b"b")]


def test_a_mark_at_the_beginning_of_the_file_is_no_content():
    assert numbered(b"\xef\xbb\xbfa\n\xef\xbb\xbfb") == [(1, b"a"), (2, b"\xef\xbb\xbfb")]
    assert numbered(b"\xef", b"\xbb\xbf", b"a") == [(1, b"a")]


def test_only_a_newline_ends_a_line():
    said = "a\u2028b\u2029c\u0085d\x0be\x0cf\rg".encode()
    assert numbered(said) == [(1, said)]


def test_a_line_that_is_too_long_is_told_of_and_not_held():
    found = list(lines((b"x" * 60, b"x" * 60, b"\nshort\n", b"y" * 101), 100))
    assert found == [Line(1, b"", is_too_long=True), Line(2, b"short"), Line(3, b"", is_too_long=True)]


def test_no_bytes_are_no_lines():
    assert numbered() == numbered(b"") == []


@given(st.lists(st.binary(max_size=8).map(lambda raw: raw.replace(b"\n", b"\r")), max_size=8), st.data())
def test_where_chunks_end_does_not_matter(said, data):
    whole = b"\n".join(said)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    chunks = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert numbered(*chunks, most=5) == numbered(whole, most=5)
