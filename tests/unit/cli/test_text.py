import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from app.cli.text import harmless


@given(st.text())
def test_no_control_character_reaches_a_terminal_and_each_keeps_its_place(text):
    shown = harmless(text)
    assert len(shown) == len(text)
    assert not [c for c in shown if unicodedata.category(c) == "Cc" and c not in "\n\t"]
    assert all(
        given_c == shown_c or unicodedata.category(given_c) == "Cc"
        for given_c, shown_c in zip(text, shown, strict=True)
    )


def test_an_escape_sequence_is_visible():
    assert harmless("\x1b[2J\x9b31m\r\n") == "␛[2J\ufffd31m␍\n"
