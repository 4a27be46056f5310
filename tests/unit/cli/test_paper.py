"""Output on paper: what a reader has before them is the output, however it came about."""

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from app.cli.paper import Paper, Screen, Sheet, Transcript
from app.cli.progress import Progress


class Pad(Paper):
    """Paper with a pencil."""

    def __init__(self):
        self.text = ""
        self.writes = 0

    def write(self, text):
        self.text += text
        self.writes += 1

    def void(self, text):
        assert self.text.endswith(text)
        self.text = self.text.removesuffix(text)

    def __exit__(self, *_):
        return None


@given(st.data())
def test_whatever_is_rewound_the_reader_ends_with_the_output(data):
    pad, output = Pad(), ""
    transcript = Transcript(pad)
    for _ in range(data.draw(st.integers(1, 12))):
        if output and data.draw(st.booleans()):
            offset = data.draw(st.integers(0, len(output)))
            output = output[:offset]
            transcript.rewind(offset)
        else:
            text = data.draw(st.text("ab", max_size=4))
            transcript.add(len(output), text)
            output += text
    transcript.finish()
    assert pad.text.removesuffix("\n") == output


def test_a_repetition_of_what_was_shown_is_not_shown_again():
    pad = Pad()
    transcript = Transcript(pad)
    transcript.add(0, "Hello world")
    transcript.rewind(2)
    transcript.add(2, "llo")
    transcript.add(5, " world!")
    assert (pad.text, pad.writes) == ("Hello world!", 2)


def test_a_transcript_that_begins_later_cuts_at_its_own_beginning():
    pad = Pad()
    transcript = Transcript(pad)
    transcript.add(100, "late")
    assert transcript.rewind(102) == 0.5
    transcript.add(102, "st")
    assert pad.text == "last"
    transcript.rewind(3)
    transcript.add(3, "new")
    assert pad.text == "new"


def progress():
    return Progress(lambda: 0.0, 0.0)


@pytest.fixture
def to_file(tmp_path, monkeypatch):
    """`to_file()` sends standard output to a file with another program's text in it."""
    path = tmp_path / "out.txt"
    path.write_text("before\n")
    with path.open("a") as file:

        def redirect():
            monkeypatch.setattr(sys, "stdout", file)
            return path

        yield redirect


def test_what_is_void_is_taken_out_of_a_file(to_file):
    path = to_file()
    with Sheet(progress()) as sheet:
        transcript = Transcript(sheet)
        transcript.add(0, "Grüße an alle")
        transcript.rewind(3)
        transcript.add(3, "n ist schön")
        transcript.finish()
    assert path.read_text() == "before\nGrün ist schön\n"


def test_nothing_is_taken_out_of_a_file_that_another_wrote_to(to_file, capsys):
    path = to_file()
    with Sheet(progress()) as sheet:
        sheet.write("Hello")
        with path.open("a") as other:
            other.write("other")
        sheet.void("llo")
    assert path.read_text() == "before\nHelloother"
    assert "void" in capsys.readouterr().err


def test_a_pipe_gets_the_text_and_nothing_else(capfdbinary):
    with Sheet(progress()) as sheet:
        sheet.write("a\x1b[31mb\u00e9")
        sheet.note("waiting")
    captured = capfdbinary.readouterr()
    assert captured.out == "a\x1b[31mb\u00e9".encode()
    assert captured.err == b"waiting\n"


@given(st.lists(st.text(st.sampled_from("ab \nü漢\t"), max_size=30), max_size=8))
def test_a_screen_shows_every_character_in_its_order(pieces):
    file = io.StringIO()
    console = Console(file=file, width=20, height=30, force_terminal=False)
    with Screen(progress(), console) as screen:
        for piece in pieces:
            screen.write(piece)

    def bare(text):
        return "".join(text.split())

    assert bare(file.getvalue()).replace(bare(progress().line()), "") == bare("".join(pieces))
