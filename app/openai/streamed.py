"""A call's choices as one stream of chunks: when it begins, whether it broke, when it is over. What a chunk's
choices look like is its subclasses' business.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from app.jobs.parts import Part
from app.jobs.tables import Job
from app.openai.choices import Ending, Track, usage
from app.openai.errors import OutputReplaced
from app.streams.frames import Frame

Chunk = dict[str, Any]
Choice = dict[str, Any]


class Streamed(ABC):
    """Reads the frames of each choice from its first one, in any order among choices."""

    reads_raw: ClassVar[bool] = False  # the model's own words, its markup included

    def __init__(
        self, jobs: Sequence[Job], head: Chunk, *, per_prompt: int, include_usage: bool = False
    ) -> None:
        self._jobs = jobs
        self._tracks = [Track(job) for job in jobs]
        self._head = {**head, "usage": None} if include_usage else head
        self._per_prompt = per_prompt
        self._includes_usage = include_usage
        self._has_begun = False
        self._is_broken = False

    @property
    def is_over(self) -> bool:
        """Nothing more comes, but what `finish` has."""
        return self._is_broken or all(track.ending for track in self._tracks)

    def feed(self, index: int, frame: Frame) -> list[Chunk]:
        """What to send for a frame of a choice. Where it is an `{"error": ...}`, that is the last."""
        track = self._tracks[index]
        if self._is_broken or track.ending:
            return []
        try:
            said = track.feed(frame, raw=self.reads_raw)
        except OutputReplaced as replaced:
            return [self.broken(replaced.code, str(replaced))]
        if track.ending and (failure := track.ending.failure):
            self._is_broken = True
            return [{"error": failure}]
        return [*self._beginning(), *self._telling(index, said)] if said or track.ending else []

    def broken(self, code: str, message: str) -> Chunk:
        """The last thing to send where the stream cannot go on."""
        self._is_broken = True
        return {"error": {"message": message, "type": "server_error", "code": code, "param": None}}

    def finish(self) -> list[Chunk]:
        """What follows the end of the last choice."""
        endings = [track.ending for track in self._tracks if track.ending]
        if self._is_broken or not self._includes_usage or len(endings) < len(self._tracks):
            return []
        reasoned = sum(track.reasoning_tokens for track in self._tracks)
        return [{**self._head, "choices": [], "usage": usage(endings, reasoned, self._per_prompt)}]

    @abstractmethod
    def begin(self, index: int) -> Choice | None:
        """How a choice opens, if there is anything to say."""

    @abstractmethod
    def tell(self, index: int, part: Part) -> Choice | None:
        """A piece of a choice."""

    @abstractmethod
    def end(self, index: int, ending: Ending, *, has_calls: bool) -> Choice:
        """How a choice closes."""

    def _beginning(self) -> Iterator[Chunk]:
        """All choices open at once and in order: the SDK takes their places from their order."""
        if self._has_begun:
            return
        self._has_begun = True
        for index in range(len(self._tracks)):
            yield from self._chunks(self.begin(index))

    def _telling(self, index: int, said: Sequence[Part]) -> Iterator[Chunk]:
        for part in said:
            yield from self._chunks(self.tell(index, part))
        track = self._tracks[index]
        if track.ending:
            yield from self._chunks(self.end(index, track.ending, has_calls=track.has_calls))

    def _chunks(self, choice: Choice | None) -> Iterator[Chunk]:
        if choice is not None:
            yield {**self._head, "choices": [choice]}
