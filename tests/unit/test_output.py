"""Tokens to showable text. The decoder here reads a token as one byte of UTF-8."""

import codecs

from hypothesis import given
from hypothesis import strategies as st

from workers.output import TextAssembler


class ByteDecoder:
    def __init__(self):
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def step(self, token_id):
        return self._decoder.decode(bytes([token_id]))

    def flush(self):
        return self._decoder.decode(b"", final=True)


def assemble(text, stop=(), min_tokens=0, *, finish=True):
    assembler = TextAssembler(ByteDecoder(), stop, min_tokens)
    shown = []
    for token in text.encode():
        shown.append(assembler.feed(token))
        if assembler.is_stopped:
            break
    return "".join(shown) + (assembler.finish() if finish else ""), assembler


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_without_stop_strings_every_character_is_shown_once(text):
    assert assemble(text)[0] == text.replace("\x00", "\ufffd")


@given(st.text("ab", max_size=40), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_output_ends_before_the_first_stop_string(text, stop):
    shown, assembler = assemble(text, stop)
    # The first moment at which some stop string has come, character by character.
    for end in range(1, len(text) + 1):
        found = [text[:end].find(one) for one in stop if one in text[:end]]
        if found:
            assert shown == text[: min(found)]
            assert assembler.is_stopped
            return
    assert shown == text
    assert not assembler.is_stopped


def test_what_may_become_a_stop_string_is_held_back():
    assert assemble("abc EN", ["END"], finish=False)[0] == "abc "
    assert assemble("abc EN", ["END"])[0] == "abc EN"
    assert assemble("abc ENx", ["END"], finish=False)[0] == "abc ENx"


def test_stop_strings_within_the_minimum_do_not_count():
    assert assemble("END and END", ["END"], min_tokens=4)[0] == "END and "


def test_nothing_follows_a_stop():
    assembler = TextAssembler(ByteDecoder(), ["b"])
    assert "".join(assembler.feed(token) for token in b"abc") == "a"
    assert assembler.finish() == ""


def test_bytes_that_never_become_a_character_are_shown_as_one_that_says_so():
    assembler = TextAssembler(ByteDecoder(), [])
    assert assembler.feed(0xF0) == ""
    assert assembler.finish() == "\ufffd"


def test_what_postgres_cannot_carry_is_replaced_and_keeps_its_place():
    assert assemble("a\x00b")[0] == "a\ufffdb"
