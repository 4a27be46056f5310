"""Shows a long command's steps in the terminal: what is going on, for how long, and what it took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Step:
    def __init__(self, title: str, progress: Progress) -> None:
        self.title = title
        self._progress = progress
        self._row = progress.add_task(title, total=None)

    def say(self, title: str) -> None:
        self.title = title
        self._progress.update(self._row, description=title)
        if not self._progress.console.is_terminal:
            self._progress.console.print(f"… {title}", markup=False, highlight=False)


@contextmanager
def step(console: Console, title: str, done: str) -> Iterator[Step]:
    """A line that moves while the body runs, replaced by `done` and the time it took."""
    began = time.monotonic()
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        shown = Step(title, progress)
        shown.say(title)
        yield shown
    console.print(f"✓ {done} ({time.monotonic() - began:.1f} s)", markup=False, highlight=False)
