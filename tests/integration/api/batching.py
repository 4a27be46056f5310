"""Batches of one caller, whose processes the test plays: lines are checked, answered, finished when it says."""

import io
from typing import Any

import orjson
from sqlalchemy import select

from app.batches.intake import Intake
from app.batches.queries import find_batch
from app.db import transaction
from app.jobs.tables import Job
from tests.integration.streams.conftest import PlayedWorker
from workers.batches import Running

CHAT = "/v1/chat/completions"


def chat_line(custom_id: str, **body: Any) -> dict[str, Any]:
    said = {"model": "faulty", "messages": [{"role": "user", "content": "Say something."}], "max_tokens": 16}
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": {**said, **body}}


def jsonl(lines: Any) -> bytes:
    return b"".join((line if isinstance(line, bytes) else orjson.dumps(line)) + b"\n" for line in lines)


class Batches:
    def __init__(self, caller: Any) -> None:
        self.caller = caller

    def upload(self, *lines: Any, purpose: str = "batch") -> str:
        form = {"file": (io.BytesIO(jsonl(lines)), "lines.jsonl"), "purpose": purpose}
        answer = self.caller.post("/v1/files", data=form, content_type="multipart/form-data")
        assert answer.status_code == 200, answer.json
        return answer.json["id"]

    def create(self, *lines: Any, headers: Any = None, **body: Any) -> Any:
        """The answer."""
        file_id = body.pop("input_file_id", None) or self.upload(*lines)
        return self.caller.post(
            "/v1/batches", {"input_file_id": file_id, "endpoint": CHAT, **body}, headers=headers
        )

    def validated(self, *lines: Any, **body: Any) -> Any:
        """A batch whose lines were checked."""
        batch = self.create(*lines, **body).json
        self.validate(batch["id"])
        return self.show(batch["id"])

    def validate(self, batch_id: str) -> None:
        intake = Intake()
        intake.run(batch_id)
        intake.close()

    def show(self, batch_id: str) -> Any:
        return self.caller.get(f"/v1/batches/{batch_id}").json

    def work(self, batch_id: str, line: int) -> PlayedWorker:
        """Claim a line for a worker that the test plays."""
        with transaction() as session:
            job = session.scalar(select(Job).where(Job.batch_id == batch_id, Job.line == line))
        assert job
        return PlayedWorker(job)

    def answer(self, batch_id: str, line: int, text: str = "An answer.") -> None:
        worker = self.work(batch_id, line)
        worker.say(text)
        worker.complete()

    def run(self, batch_id: str) -> Any:
        """Let the background process look once. The batch after it."""
        Running().round()
        with transaction() as session:
            assert find_batch(session, batch_id)
        return self.show(batch_id)
