"""Where a job's output is written while it comes: a terminal, with the progress line below it, or a file or
pipe, which gets the text and nothing else. It must not know where events come from.
"""

import os
import stat
import sys
from contextlib import AbstractContextManager
from itertools import pairwise
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from app.cli.progress import Progress
from app.cli.text import harmless

REFRESH_PER_SECOND: Final = 12
OPEN_ROWS: Final = 3  # of a line that still grows; rows above are final


class Paper(AbstractContextManager["Paper"], Protocol):
    def write(self, text: str) -> None: ...

    def void(self, text: str) -> None:
        """Take back the last that was written, `text`."""

    def note(self, line: str) -> None:
        """Say something beside the output, on stderr."""

    def tell(self, reason: str) -> None:
        """Say what the job waits for, where no progress line does."""


class Screen(Paper):
    """A terminal. Finished lines scroll away; the open one and the progress are drawn again and again."""

    def __init__(self, progress: Progress, console: Console | None = None) -> None:
        self._progress = progress
        self._console = console or Console(highlight=False)
        self._open = ""
        self._live = Live(self, console=self._console, refresh_per_second=REFRESH_PER_SECOND, transient=True)

    def __rich__(self) -> Group:
        rows = [Text(self._open)] if self._open else []
        progress = Text(self._progress.line(), style="dim", no_wrap=True, overflow="ellipsis")
        return Group(*rows, progress)

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        rest, self._open = self._open, ""
        self._live.stop()
        if rest:
            self._console.print(Text(rest))

    def write(self, text: str) -> None:
        *finished, last = (self._open + harmless(text)).split("\n")
        rows = self._rows(last)
        if len(rows) > OPEN_ROWS:
            finished += [row.rstrip() for row in rows[:-1]]
            last = rows[-1]
        self._open = last
        if finished:
            self._console.print(Text("\n".join(finished)))

    def void(self, text: str) -> None:
        if len(text) <= len(self._open):
            self._open = self._open[: len(self._open) - len(text)]
            return
        self._open = ""
        self.note(f"The last {len(text)} characters are void; the output goes on before them.")

    def note(self, line: str) -> None:
        self._console.print(Text(harmless(line), style="dim"))

    def tell(self, reason: str) -> None:
        """The progress line says it."""

    def _rows(self, line: str) -> list[str]:
        """A line as the terminal's width breaks it; together the rows are the line."""
        plain = line.replace("\t", " ")
        starts, end = [], 0
        for row in Text(plain).wrap(self._console, self._console.width):
            starts.append(max(plain.find(row.plain, end), end))
            end = starts[-1] + len(row.plain)
        return [line[start:stop] for start, stop in pairwise([0, *starts[1:], len(line)])]


class Sheet(Paper):
    """Standard output that is not to be drawn on. Only a terminal on stderr gets a progress line."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._is_terminal = sys.stdout.isatty()
        self._end: int | None = None  # of the file behind stdout, after our last byte
        self._live = Live(
            self,
            console=Console(stderr=True, highlight=False),
            refresh_per_second=REFRESH_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._draws = self._live.console.is_terminal and not self._is_terminal

    def __rich__(self) -> Text:
        return Text(self._progress.line(), style="dim", no_wrap=True, overflow="ellipsis")

    def __enter__(self) -> Self:
        if self._draws:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._live.stop()

    def write(self, text: str) -> None:
        data = (harmless(text) if self._is_terminal else text).encode(errors="replace")
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        self._end = self._file_end()

    def void(self, text: str) -> None:
        end = self._file_end()
        if end is not None and end == self._end:
            # Nobody else wrote to the file since: the last bytes are ours.
            kept = end - len(text.encode(errors="replace"))
            os.ftruncate(sys.stdout.fileno(), kept)
            os.lseek(sys.stdout.fileno(), kept, os.SEEK_SET)
            return
        self.note(f"The last {len(text)} characters are void; the output goes on before them.")

    def note(self, line: str) -> None:
        self._live.console.print(Text(harmless(line)), soft_wrap=True)

    def tell(self, reason: str) -> None:
        if reason and not self._draws:
            self.note(f"waiting: {reason}")

    def _file_end(self) -> int | None:
        """Where the file behind stdout ends, if we stand there."""
        try:
            status = os.fstat(sys.stdout.fileno())
            at = os.lseek(sys.stdout.fileno(), 0, os.SEEK_CUR)
        except OSError:
            return None
        return at if stat.S_ISREG(status.st_mode) and at == status.st_size else None


def paper_for(progress: Progress) -> Paper:
    return Screen(progress) if sys.stdout.isatty() and sys.stderr.isatty() else Sheet(progress)


class Transcript:
    """The output on paper. A rewind takes nothing back until other text comes: a generation that is repeated is
    mostly the same again.
    """

    def __init__(self, paper: Paper) -> None:
        self._paper = paper
        self._start: int | None = None  # in the whole output
        self._shown = ""
        self._at = 0

    def add(self, offset: int, text: str) -> None:
        """`offset` is in characters of the whole output."""
        if self._start is None:
            self._start = offset
        again = self._shown[self._at : self._at + len(text)]
        if not text.startswith(again):
            self._cut()
            again = ""
        new = text[len(again) :]
        self._at += len(text)
        if new:
            self._shown += new
            self._paper.write(new)

    def rewind(self, offset: int) -> float:
        """The share of the output that is kept."""
        self._at = max(0, offset - (self._start or 0))
        return self._at / len(self._shown) if self._shown else 0.0

    def finish(self) -> None:
        self._cut()
        if self._shown and not self._shown.endswith("\n"):
            self._paper.write("\n")

    def _cut(self) -> None:
        if self._at < len(self._shown):
            self._paper.void(self._shown[self._at :])
            self._shown = self._shown[: self._at]
