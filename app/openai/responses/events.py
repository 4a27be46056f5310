"""A job's log as the stream events of the Responses API. Pure: it is fed frames from the job's first on, one a
sequence number (`frames.pieces_of`), and gives the events that are to be sent.

An event's `sequence_number` is a function of the log and of what the output holds up to there, so that it is
the same live and later, on any replica: one less than the frame's `seq`, plus one for each event so far that
only gives the output its structure, plus one for each item that follows another. That last keeps a number free
for the case that both come in one frame. Numbers rise; where items change and where the log skips, they skip.
What a restart throws away keeps its numbers: a cursor says on which side of the restart its follower is.
"""

from bisect import bisect_left
from datetime import datetime
from typing import Any, Final

import orjson

from app.jobs.log import REWIND
from app.jobs.parts import REASONING, TEXT, TOOL_CALL, Part
from app.jobs.states import TERMINAL_EVENT_TYPES, Status
from app.jobs.tables import Job
from app.openai.errors import OutputReplaced
from app.openai.fold import Shown, width
from app.openai.responses import response
from app.openai.responses.output import Item, Items, ItemStatus, add, status_of_last, with_bytes
from app.openai.responses.response import Standing
from app.streams.frames import DELTA, Frame

Event = dict[str, Any]

# The union of stream events has no response.cancelled: its Response's status says it.
_TERMINAL: Final = {
    Status.COMPLETED: "response.completed",
    Status.INCOMPLETE: "response.incomplete",
    Status.CANCELLED: "response.incomplete",
    Status.FAILED: "response.failed",
    Status.EXPIRED: "response.failed",
}
# What went wrong matters more than that shown output was lost with it.
_FAILED: Final = {Status.FAILED, Status.EXPIRED}
_DELTA: Final = {
    TEXT: "response.output_text.delta",
    REASONING: "response.reasoning_text.delta",
    TOOL_CALL: "response.function_call_arguments.delta",
}


class Projector:
    """The stream of one follower, who has every event up to `starting_after`."""

    def __init__(self, job: Job, starting_after: int | None = None) -> None:
        self._job = job
        self._after = -1 if starting_after is None else starting_after
        self._seq = 0
        self._base = 0  # events so far that are no frame's own, but for those of the output shown
        self._begin_output()
        self._last = -1
        self._has_started = False
        self._has_seen_output = False  # by its cursor
        self._ready: list[Event] = []
        self._held: list[Event] | None = [] if job.output_start_seq else None
        self.is_over = False

    def _begin_output(self) -> None:
        self._items = Items(self._job.id)
        self._shown = Shown()
        self._structural = 0  # events of the output shown that are no frame's own
        self._openings: list[
            tuple[int, int]
        ] = []  # where on `_shown` items begin, and `_structural` from there

    def feed(self, frame: Frame) -> list[Event]:
        """What follows from the next frame."""
        if self.is_over:
            return []
        self._ready = []
        self._seq = frame.seq
        try:
            self._read(frame)
        except OutputReplaced as error:
            self._ready.append(self.broken(error.code, str(error)))
        return self._ready

    def broken(self, code: str, message: str) -> Event:
        """The error event that ends a stream before its job has ended."""
        self.is_over = True
        number = max(self._last, self._after) + 1
        return {"type": "error", "code": code, "message": message, "param": None, "sequence_number": number}

    def _read(self, frame: Frame) -> None:
        if frame.type == DELTA:
            self._read_output(orjson.loads(frame.body))
            return
        fields = orjson.loads(frame.body)
        if frame.type == REWIND:
            self._rewind(fields)
            return
        self._check_cursor(frame)
        if frame.type in TERMINAL_EVENT_TYPES:
            self._end(fields)
        elif frame.seq == 1:
            self._create()
        elif frame.type == Status.IN_PROGRESS.event_type and not self._has_started:
            self._has_started = True
            self._announce("response.in_progress", Status.IN_PROGRESS)

    def _rewind(self, fields: dict[str, Any]) -> None:
        if "job_id" in fields:
            self._restart()
        self._shown.rewind(fields["offset"])

    def _restart(self) -> None:
        """An event of the log, not a follower's own rewind: the output begins again."""
        counted = bisect_left(self._openings, self._shown.at, key=lambda opening: opening[0])
        self._base += self._openings[counted - 1][1] if counted else 0
        if self._held is None:
            return
        if self._has_seen_output and self._after < self._seq - 1 + self._base:
            # This follower was shown what is void now, so it goes on like one who stayed.
            self._ready += self._held
            self._held = None
        else:
            self._begin_output()
            self._held = [] if self._seq < self._job.output_start_seq else None

    def _check_cursor(self, frame: Frame) -> None:
        """A cursor among numbers that an event voids is that of a follower who was shown lost output."""
        void = range(frame.first_seq - 1 + self._base + self._structural, self._number())
        if self._after in void:
            raise OutputReplaced

    def _create(self) -> None:
        is_background = bool((self._job.echo or {}).get("background"))
        first = Status.QUEUED if is_background else Status.IN_PROGRESS
        self._announce("response.created", first)
        if is_background:
            self._base += 1
            self._announce("response.queued", first)

    def _announce(self, kind: str, status: Status) -> None:
        self._emit(kind, response=response.compose(self._job, Standing(status), []))

    def _read_output(self, fields: dict[str, Any]) -> None:
        position = self._shown.end
        for part in self._shown.show(fields):
            before = self._items.last
            item, is_new = self._items.item_of(part)
            if is_new:
                if before is not None:
                    self._structural += 1
                    self._close(before, "completed")
                self._open(item)
                self._openings.append((position, self._structural))
            position += width(part)
            self._add(item, part)

    def _add(self, item: Item, part: Part) -> None:
        text = add(item, part)
        logprobs = [with_bytes(entry) for entry in part.get("logprobs") or ()]
        if not text and not logprobs:
            return
        place = {} if item.kind == TOOL_CALL else {"content_index": 0}
        spelled = {"logprobs": logprobs} if item.kind == TEXT else {}
        self._emit(_DELTA[item.kind], **_where(item), **place, delta=text, **spelled)

    def _open(self, item: Item) -> None:
        announced = item.describe("in_progress", has_content=False)
        self._structure("response.output_item.added", output_index=item.index, item=announced)
        if item.kind != TOOL_CALL:
            part = {**item.content_part(), "text": ""}
            self._structure("response.content_part.added", **_where(item), content_index=0, part=part)

    def _close(self, item: Item, status: ItemStatus) -> None:
        where = _where(item)
        if item.kind == TOOL_CALL:
            arguments = item.arguments(status)
            self._structure(
                "response.function_call_arguments.done", **where, name=item.name, arguments=arguments
            )
        else:
            part = item.content_part()
            where["content_index"] = 0
            if item.kind == TEXT:
                spelled = part["logprobs"]
                self._structure("response.output_text.done", **where, text=item.text, logprobs=spelled)
            else:
                self._structure("response.reasoning_text.done", **where, text=item.text)
            self._structure("response.content_part.done", **where, part=part)
        self._structure("response.output_item.done", output_index=item.index, item=item.describe(status))

    def _end(self, fields: dict[str, Any]) -> None:
        status = Status(fields["status"])
        if status not in _FAILED:
            self._shown.finish()
        self.is_over = True
        before = self._items.last
        output = response.output_of(self._items, status)
        last = self._items.last
        if last is not before and last is not None:
            if before is not None:
                self._close(before, "completed")
            self._open(last)
        if last is not None:
            self._close(last, status_of_last(status))
        standing = Standing(
            status,
            fields.get("error"),
            (fields.get("incomplete_details") or {}).get("reason"),
            fields.get("usage"),
            self._shown.reasoning_tokens,
            datetime.fromisoformat(fields["at"]),
        )
        self._emit(_TERMINAL[status], response=response.compose(self._job, standing, output))

    def _structure(self, kind: str, **fields: Any) -> None:
        self._emit(kind, **fields)
        self._structural += 1

    def _number(self) -> int:
        return self._seq - 1 + self._base + self._structural

    def _emit(self, kind: str, **fields: Any) -> None:
        number = self._number()
        is_output = self._items.last is not None
        if number <= self._after:
            self._has_seen_output = self._has_seen_output or is_output
            return
        event = {"type": kind, "sequence_number": number, **fields}
        if self._held is not None and is_output:
            # Whether this is void to the follower shows at the restart that the log has further on.
            self._held.append(event)
        else:
            self._last = number
            self._ready.append(event)


def _where(item: Item) -> dict[str, Any]:
    return {"item_id": item.id, "output_index": item.index}
