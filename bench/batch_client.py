"""A client of `/v1/batches`: writes a file of requests, has it run, fetches the answers and checks them. It
knows nothing of what is measured.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx
import orjson

from app.batches.tables import Batch
from app.db import transaction
from bench.harness import BenchFailed

ENDPOINT: Final = "/v1/chat/completions"
PATIENCE_SECONDS: Final = 3600.0
POLL_SECONDS: Final = 0.05
ENDED: Final = frozenset({"completed", "failed", "expired", "cancelled"})


@dataclass(frozen=True, slots=True)
class Load:
    """`lines` chats of up to `tokens` tokens. Their numbers begin with `first`: no prompt begins like that of
    another load, whose prefix is cached.
    """

    model: str
    lines: int
    tokens: int
    first: int = 1


def write_lines(path: Path, load: Load) -> None:
    with path.open("wb") as file:
        file.writelines(orjson.dumps(_line(load, number)) + b"\n" for number in _numbers(load))


def _numbers(load: Load) -> range:
    return range(load.first, load.first + load.lines)


def _line(load: Load, number: int) -> dict[str, Any]:
    asked = f"{number}: write a long story about the sea, its ships and those who sail them."
    return {
        "custom_id": f"line {number}",
        "method": "POST",
        "url": ENDPOINT,
        "body": {
            "model": load.model,
            "messages": [{"role": "user", "content": asked}],
            "max_tokens": load.tokens,
            "temperature": 0,
        },
    }


def check(load: Load, answers: Iterable[bytes]) -> int:
    """The output tokens of all. Raises `BenchFailed` unless each line is answered once, in order."""
    tokens, expected = 0, iter(_numbers(load))
    for content in answers:
        answer = orjson.loads(content)
        number = next(expected, None)
        if answer["custom_id"] != f"line {number}" or answer["response"]["status_code"] != httpx.codes.OK:
            raise BenchFailed(f"An answer for line {number} was expected, not {content[:500]!r}.")
        tokens += answer["response"]["body"]["usage"]["completion_tokens"]
    if (number := next(expected, None)) is not None:
        raise BenchFailed(f"Line {number} has no answer.")
    return tokens


class Batches:
    """As a client sees them, but that the database says their status: asking costs the platform little."""

    def __init__(self, url: str, key: str) -> None:
        self._http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=120, trust_env=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._http.close()

    def upload(self, path: Path) -> str:
        with path.open("rb") as file:
            return self._id(
                self._http.post("/v1/files", data={"purpose": "batch"}, files={"file": (path.name, file)})
            )

    def create(self, file_id: str) -> str:
        body = {"input_file_id": file_id, "endpoint": ENDPOINT, "completion_window": "24h"}
        return self._id(self._http.post("/v1/batches", json=body))

    def get(self, batch_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self._http.get(f"/v1/batches/{batch_id}").raise_for_status().json()
        return found

    def await_status(self, batch_id: str, *wanted: str) -> float:
        """When it was seen in one of them, in monotonic seconds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (status := _status(batch_id)) not in wanted:
            if status in ENDED or time.monotonic() > deadline:
                raise BenchFailed(f"The batch is {status}: {self.get(batch_id)}")
            time.sleep(POLL_SECONDS)
        return time.monotonic()

    def download(self, file_id: str, to: Path) -> None:
        with self._http.stream("GET", f"/v1/files/{file_id}/content") as answer, to.open("wb") as file:
            answer.raise_for_status()
            file.writelines(answer.iter_bytes())

    @staticmethod
    def _id(answer: httpx.Response) -> str:
        if not answer.is_success:
            raise BenchFailed(f"Refused: {answer.status_code} {answer.text[:500]}")
        public_id: str = answer.json()["id"]
        return public_id


def _status(batch_id: str) -> str:
    with transaction() as session:
        batch = session.get(Batch, batch_id)
        assert batch is not None
        return batch.status
