"""Batches for tests: asked for as a client does, validated as the intake does, their lines run by hand."""

from typing import Any

import orjson

from app.accounts.limits import Caller, limits_of
from app.batches import creating
from app.batches.creating import CreateBatch
from app.batches.intake import Intake
from app.batches.tables import Batch
from app.db import transaction
from app.files import shelf
from app.files.spool import Spool
from app.files.storage import storage
from app.files.tables import Purpose
from app.ids import new_id
from app.jobs import lifecycle
from app.jobs.log import Segment, store_segments
from app.jobs.tables import Job
from config.queues import Tier

CHAT = "/v1/chat/completions"
PREFILL = lifecycle.Prefill(10, 4, 0.1)


def chat(number: int, **body: Any) -> dict[str, Any]:
    asked = {"model": "simulated", "messages": [{"role": "user", "content": f"Say {number}."}], "max_tokens": 8}
    return {"custom_id": f"line-{number}", "method": "POST", "url": CHAT, "body": {**asked, **body}}


def caller_of(account: Any) -> Caller:
    return Caller(account.id, new_id("key"), {tier: limits_of(account, None, tier) for tier in Tier})


def upload(account: Any, content: bytes) -> str:
    """A file's id."""
    with Spool(1 << 40) as spool:
        spool.write(content)
        digest = spool.finish()
        with transaction() as session:
            shelf.begin(session, digest, spool.bytes)
        storage().put(digest, spool.path)
        with transaction() as session:
            draft = shelf.Draft(account.id, digest, spool.bytes, "lines.jsonl", Purpose.BATCH)
            return shelf.keep(session, draft).id


def ask_for(account: Any, lines: list[dict[str, Any]], **wanted: Any) -> Batch:
    """A batch that is validating."""
    file_id = upload(account, b"".join(orjson.dumps(line) + b"\n" for line in lines))
    body = CreateBatch(**{"input_file_id": file_id, "endpoint": CHAT, **wanted})
    with transaction() as session:
        return creating.create(session, caller_of(account), body, None)[0]


def start(account: Any, lines: list[dict[str, Any]], **wanted: Any) -> Batch:
    """A batch that runs."""
    batch = ask_for(account, lines, **wanted)
    intake = Intake()
    intake.run(batch.id)
    intake.close()
    return again(batch)


def again(batch: Batch) -> Batch:
    """As it is now."""
    with transaction() as session:
        return session.get_one(Batch, batch.id)


def job_of(batch: Batch, line: int) -> Job:
    with transaction() as session:
        return session.query(Job).filter_by(batch_id=batch.id, line=line).one()


def claim(batch: Batch, line: int, output: str = "") -> Job:
    """Start a line, on no worker, and let it say something: a token a character."""
    with transaction() as session:
        move = lifecycle.claim(session, job_of(batch, line).id, "w", 60)
        assert move is not None
        if output:
            store_segments(session, [_segment(move.job, output)])
    return move.job


def _segment(job: Job, output: str) -> Segment:
    seqs = range(3, 3 + len(output))
    return Segment(
        job_id=job.id,
        lease_id=job.lease_id or "",
        first_seq=seqs[0],
        seq=seqs[-1],
        attempt=job.attempt,
        char_offset=0,
        text=output,
        ends=list(range(1, len(output) + 1)),
        token_ids=[ord(char) for char in output],
    )


def complete(batch: Batch, line: int, output: str = "Fine.") -> None:
    job = claim(batch, line, output)
    with transaction() as session:
        assert lifecycle.complete(session, job.id, job.lease_id or "", PREFILL)


def fail(batch: Batch, line: int) -> None:
    job = claim(batch, line)
    with transaction() as session:
        assert lifecycle.fail(session, job.id, job.lease_id or "", PREFILL, "engine_error", "It broke.")


def stop(batch: Batch, line: int, output: str = "Par") -> None:
    """End a line as its worker does once it was told to cancel."""
    with transaction() as session:
        job = session.query(Job).filter_by(batch_id=batch.id, line=line).one()
        assert lifecycle.cancel(session, job.id, job.lease_id or "", PREFILL)
