"""Watch a job: its events onto paper, its state into the progress line, its end into an exit status."""

from datetime import UTC, datetime
from typing import Any, Final

from app import clock
from app.cli.client import Api
from app.cli.errors import CommandFailed, Unreachable
from app.cli.following import Follower, the_job
from app.cli.paper import Paper, Transcript, paper_for
from app.cli.progress import Progress
from app.jobs.states import TERMINAL_EVENT_TYPES, Status

EXIT_STATUS: Final = {Status.COMPLETED: 0, Status.INCOMPLETE: 2}
FAILED_STATUS: Final = 1
INTERRUPTED: Final = 130
FIRST_LOOK_SECONDS: Final = 0.3
LOOK_SECONDS: Final = 2.0
TELL_SECONDS: Final = 30.0  # between two words on how a job comes forward, where no line shows it
DELTA: Final = "output.delta"
REWIND: Final = "output.rewind"
MOVED: Final = "queue.moved"
IN_LINE: Final = "in_line"


def watch(api: Api, job: dict[str, Any], after: int = 0, submitted_at: float | None = None) -> int:
    """The exit status. `job` is what the API last said of it; `submitted_at` is in monotonic seconds, where
    this process submitted it.
    """
    return _Watch(api, job, after, submitted_at).run()


class _Watch:
    def __init__(self, api: Api, job: dict[str, Any], after: int, submitted_at: float | None) -> None:
        self._api = api
        self._id: str = job["id"]
        self._follower = Follower(api, the_job(self._id), after)
        began_at = submitted_at or _monotonic(datetime.fromtimestamp(job["created_at"], UTC))
        self._progress = Progress(clock.monotonic, began_at, status=job["status"])
        self._is_ours = submitted_at is not None
        self._is_replay = job["status"] != Status.QUEUED or after > 0
        self._look_at = clock.monotonic() + FIRST_LOOK_SECONDS
        self._told: str | None = None
        self._told_at = 0.0

    def run(self) -> int:
        paper = paper_for(self._progress)
        try:
            with paper:
                ending = self._follow(paper)
        except KeyboardInterrupt:
            paper.note(
                f"\nThe job goes on. To watch or stop it:\n"
                f"  longhaul watch {self._id} --after {self._follower.cursor}\n"
                f"  longhaul cancel {self._id}"
            )
            return INTERRUPTED
        self._progress.ended_at = clock.monotonic()
        paper.note(self._progress.summary(ending))
        return EXIT_STATUS.get(Status(self._progress.status), FAILED_STATUS)

    def _follow(self, paper: Paper) -> dict[str, Any]:
        transcript = Transcript(paper)
        for event in self._follower:
            self._progress.is_connected = self._follower.is_connected
            if event is None:
                self._look(paper)
                continue
            self._take(event, transcript)
            if event["type"] in TERMINAL_EVENT_TYPES:
                transcript.finish()
                return event
        raise CommandFailed(f"The stream of {self._id} ended before the job did.")

    def _take(self, event: dict[str, Any], transcript: Transcript) -> None:
        if event["type"] == DELTA:
            transcript.add(event["offset"], event["delta"])
            pieces = event["seq"] - event.get("first_seq", event["seq"]) + 1
            self._progress.note_output(pieces, is_replay=self._is_replay)
        elif event["type"] == REWIND:
            self._progress.note_rewind(transcript.rewind(event["offset"]))
        elif event["type"] == MOVED:
            self._progress.note_place(event["position"], _wait_seconds(event))
        elif "status" in event:
            self._progress.note_status(event["status"])
            if event["type"] == Status.QUEUED.event_type and event["seq"] == 1 and not self._is_ours:
                # `created_at` is in whole seconds, this is exact.
                self._progress.began_at = _monotonic(datetime.fromisoformat(event["at"]))

    def _look(self, paper: Paper) -> None:
        """Ask what a queued job waits for."""
        if self._progress.status != Status.QUEUED or clock.monotonic() < self._look_at:
            return
        self._look_at = clock.monotonic() + LOOK_SECONDS
        try:
            waiting = self._api.job(self._id).get("waiting") or {}
        except Unreachable:
            return
        message, reason = str(waiting.get("message", "")), waiting.get("reason")
        # Its turn is shown as the notices tell it, once they do.
        is_its_turn = reason == IN_LINE and self._progress.position is not None
        self._progress.waiting = "" if is_its_turn else message
        now = clock.monotonic()
        if reason != self._told or (reason == IN_LINE and now - self._told_at >= TELL_SECONDS):
            self._told, self._told_at = reason, now
            paper.tell(message)


def _wait_seconds(notice: dict[str, Any]) -> float | None:
    """By the server's clock, which made the estimate."""
    start_at = notice.get("estimated_start_at")
    return start_at and max(0.0, start_at - datetime.fromisoformat(notice["at"]).timestamp())


def _monotonic(at: datetime) -> float:
    return clock.monotonic() - max(0.0, (clock.now() - at).total_seconds())
