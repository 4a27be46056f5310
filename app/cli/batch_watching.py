"""Watch a batch: its events into the progress, what is wrong with its lines onto the terminal, its end into a
verdict. All of it goes to stderr; standard output is the command's.
"""

from datetime import UTC, datetime
from typing import Any, Final

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from app import clock
from app.batches.states import PROGRESS, BatchStatus
from app.cli.batch_progress import BatchProgress
from app.cli.batch_words import faults, verdict, ways_on
from app.cli.client import Api, batch_path
from app.cli.errors import Unreachable
from app.cli.following import Follower, the_batch
from app.cli.text import harmless

INTERRUPTED: Final = 130
LOOK_SECONDS: Final = 1.0  # between two questions for what events do not say: cost, faults
TELL_SECONDS: Final = 10.0  # between two words on how it comes forward, where no bar shows it
REFRESH_PER_SECOND: Final = 5


def watch(api: Api, batch: dict[str, Any]) -> dict[str, Any]:
    """The batch once it has ended. `batch` is what the API last said of it. Ctrl-C leaves it running."""
    watching = _Watch(api, batch)
    try:
        ended = watching.run()
    except KeyboardInterrupt:
        watching.say(
            f"The batch goes on. To watch or stop it:\n"
            f"  longhaul batch watch {batch['id']}\n"
            f"  longhaul batch cancel {batch['id']}"
        )
        raise typer.Exit(INTERRUPTED) from None
    watching.say("\n".join([verdict(ended), *ways_on(ended)]))
    return ended


def await_end(api: Api, batch: dict[str, Any]) -> dict[str, Any]:
    """The batch once it has ended, without a word."""
    for _ in Follower(api, the_batch(batch["id"]), 0):
        pass
    return api.call("GET", batch_path(batch["id"]))


class _Watch:
    def __init__(self, api: Api, batch: dict[str, Any]) -> None:
        self._api = api
        self._path = batch_path(batch["id"])
        self._follower = Follower(api, the_batch(batch["id"]), 0)
        age = (clock.now() - datetime.fromtimestamp(batch["created_at"], UTC)).total_seconds()
        self._progress = BatchProgress(clock.monotonic, clock.monotonic() - max(0.0, age), batch)
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(
            self._progress,
            console=self._console,
            refresh_per_second=REFRESH_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._is_stale = True
        self._look_at = 0.0
        self._told_at = 0.0
        self._told_status = ""
        self._has_told_faults = False

    def run(self) -> dict[str, Any]:
        try:
            if self._console.is_terminal:
                self._live.start(refresh=True)
            for event in [] if _has_ended(self._progress.batch) else self._follower:
                self._progress.is_connected = self._follower.is_connected
                if event is not None:
                    self._progress.note(event)
                    self._is_stale = True
                self._look()
                self._tell(event)
            self._progress.batch = self._api.call("GET", self._path)
            self._tell_faults()
        finally:
            self._live.stop()
        return self._progress.batch

    def say(self, text: str) -> None:
        self._console.print(Text(harmless(text)), soft_wrap=True)

    def _look(self) -> None:
        if not self._is_stale or clock.monotonic() < self._look_at:
            return
        self._look_at = clock.monotonic() + LOOK_SECONDS
        try:
            self._progress.batch = self._api.call("GET", self._path)
        except Unreachable:
            return
        self._is_stale = False
        self._tell_faults()

    def _tell_faults(self) -> None:
        """Once: they are all known when the lines are checked."""
        if not self._has_told_faults and (problems := faults(self._progress.batch)):
            self._has_told_faults = True
            self.say("\n".join(problems))

    def _tell(self, event: dict[str, Any] | None) -> None:
        """How it comes forward, where no bar shows it."""
        if self._console.is_terminal:
            return
        status, now = self._progress.batch["status"], clock.monotonic()
        is_news = status != self._told_status and not _has_ended(self._progress.batch)
        is_time = event is not None and event["type"] == PROGRESS and now - self._told_at >= TELL_SECONDS
        if is_news or is_time:
            self._told_at, self._told_status = now, status
            self.say(self._progress.line())


def _has_ended(batch: dict[str, Any]) -> bool:
    return BatchStatus(batch["status"]).is_terminal
