"""The log of a job: writing segments and events in one sequence, and reading it back.

Every writer holds the job's row lock, so that sequence numbers are handed out one by one. Output is numbered
by the worker that holds the lease; whoever breaks a lease leaves a hole-free trace by writing an event that
*covers* every number the lost worker may have shown without storing (`UNSTORED_SEQ_LIMIT`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from sqlalchemy import ARRAY, BigInteger, Integer, LargeBinary, Text, bindparam, delete, func, select, text
from sqlalchemy.dialects.postgresql import UUID
from sqlalchemy.orm import Session

from app.ids import PrefixedId, to_uuid
from app.jobs.parts import Part
from app.jobs.states import TERMINAL_EVENT_TYPES
from app.jobs.tables import Job, JobEvent, JobSegment, pack_ints

# A worker never shows more than this many sequence numbers beyond what is stored: then it waits for Postgres.
UNSTORED_SEQ_LIMIT: Final = 4096

# Output from `data.offset` on is void; what follows replaces it.
REWIND: Final = "output.rewind"


@dataclass(frozen=True, slots=True)
class Segment:
    """Output that is to be stored: see `JobSegment`. `lease_id` is the fence."""

    job_id: str
    lease_id: str
    first_seq: int
    seq: int
    attempt: int
    char_offset: int
    text: str
    ends: list[int]
    token_ids: list[int]
    logprobs: list[Any] | None = None
    parts: list[Any] | None = None


# FOR SHARE waits for a rescue that is under way and then sees that the lease is gone; without it a stale
# worker's row could land behind the rescuer's event.
_STORE = text("""
    INSERT INTO job_segments
        (job_id, seq, first_seq, attempt, char_offset, text, ends, token_ids, logprobs, parts)
    SELECT r.job_id, r.seq, r.first_seq, r.attempt, r.char_offset, r.text, r.ends, r.token_ids,
        r.logprobs::jsonb, r.parts::jsonb
    FROM unnest(:job_ids, :leases, :seqs, :first_seqs, :attempts, :offsets, :texts, :ends, :tokens, :logprobs,
            :parts)
        AS r(job_id, lease_id, seq, first_seq, attempt, char_offset, text, ends, token_ids, logprobs, parts)
    JOIN (SELECT id, lease_id FROM jobs WHERE id = ANY(:job_ids) ORDER BY id FOR SHARE) held
        ON held.id = r.job_id AND held.lease_id = r.lease_id
    RETURNING job_id
""").bindparams(
    bindparam("job_ids", type_=ARRAY(UUID)),
    bindparam("leases", type_=ARRAY(UUID(as_uuid=False))),
    bindparam("seqs", type_=ARRAY(BigInteger)),
    bindparam("first_seqs", type_=ARRAY(BigInteger)),
    bindparam("attempts", type_=ARRAY(Integer)),
    bindparam("offsets", type_=ARRAY(Integer)),
    bindparam("texts", type_=ARRAY(Text)),
    bindparam("ends", type_=ARRAY(LargeBinary)),
    bindparam("tokens", type_=ARRAY(LargeBinary)),
    bindparam("logprobs", type_=ARRAY(Text)),
    bindparam("parts", type_=ARRAY(Text)),
)


def store_segments(session: Session, segments: Sequence[Segment]) -> set[str]:
    """Store all in one statement. Returns the ids of the jobs whose lease still held; others stored nothing."""
    if not segments:
        return set()
    rows = session.execute(
        _STORE,
        {
            "job_ids": [to_uuid("job", s.job_id) for s in segments],
            "leases": [s.lease_id for s in segments],
            "seqs": [s.seq for s in segments],
            "first_seqs": [s.first_seq for s in segments],
            "attempts": [s.attempt for s in segments],
            "offsets": [s.char_offset for s in segments],
            "texts": [s.text for s in segments],
            "ends": [pack_ints(s.ends) for s in segments],
            "tokens": [pack_ints(s.token_ids) for s in segments],
            "logprobs": [_json_or_null(s.logprobs) for s in segments],
            "parts": [_json_or_null(s.parts) for s in segments],
        },
    )
    return {f"job_{row.job_id.hex}" for row in rows}


def _json_or_null(value: Any) -> str | None:
    return None if value is None else orjson.dumps(value).decode()


# Whether webhooks are to be made of an event: the account listens to its type, or it ends a job that names a
# URL. A batch's lines are told of by their batch alone. Of `jobs` and `accounts`; `:type` is bound.
IS_DUE: Final = """
    (jobs.batch_id IS NULL AND :type = ANY(accounts.listens_to)
        OR jobs.webhook_url IS NOT NULL AND :type = ANY(:ending_types))
"""

# The next number and the row in one round trip; the caller's row lock makes the number ours.
_APPEND = text(f"""
    INSERT INTO job_events (job_id, seq, first_seq, type, data, is_due)
    SELECT :job_id, stored.seq + 1 + :void, stored.seq + 1, :type, CAST(:data AS jsonb), {IS_DUE}
    FROM (SELECT coalesce(greatest(
        (SELECT max(seq) FROM job_events WHERE job_id = :job_id),
        (SELECT max(seq) FROM job_segments WHERE job_id = :job_id)
    ), 0) AS seq) stored, jobs JOIN accounts ON accounts.id = jobs.account_id
    WHERE jobs.id = :job_id
    RETURNING seq, first_seq, created_at
""").bindparams(  # noqa: S608 - of our own text
    bindparam("job_id", type_=PrefixedId("job")),
    bindparam("void", type_=BigInteger),
    bindparam("type", type_=Text),
    bindparam("data", type_=Text),
    bindparam("ending_types", sorted(TERMINAL_EVENT_TYPES), type_=ARRAY(Text)),
)


def append_event(
    session: Session, job_id: str, event_type: str, data: dict[str, Any], *, void: bool = False
) -> JobEvent:
    """Write the next event of a job whose row this transaction has locked. With `void` it also covers every
    number that a lost worker may have shown.
    """
    values = {
        "job_id": job_id,
        "void": UNSTORED_SEQ_LIMIT if void else 0,
        "type": event_type,
        "data": orjson.dumps(data).decode(),
    }
    row = session.connection().execute(_APPEND, values).one()
    return JobEvent(job_id=job_id, type=event_type, data=data, **row._mapping)  # noqa: SLF001 - public, in spite of its name


def last_seq(session: Session, job_id: str) -> int:
    """The last stored sequence number, 0 for an empty log."""
    ends = [
        select(func.max(table.seq)).where(table.job_id == job_id).scalar_subquery()
        for table in (JobEvent, JobSegment)
    ]
    found: int | None = session.scalar(select(func.greatest(*ends)))
    return found or 0


def read_log(session: Session, job_id: str, after: int, limit: int) -> list[JobEvent | JobSegment]:
    """The next rows that reach beyond `after`, in order and without holes, at most `limit`; the first row may
    begin before `after`.
    """
    rows: list[JobEvent | JobSegment] = []
    for table in (JobEvent, JobSegment):
        statement = (
            select(table).where(table.job_id == job_id, table.seq > after).order_by(table.seq).limit(limit)
        )
        rows += session.scalars(statement)
    rows.sort(key=lambda row: row.seq)
    return _without_holes(rows, after)[:limit]


def _without_holes(rows: list[JobEvent | JobSegment], after: int) -> list[JobEvent | JobSegment]:
    """The two tables are read one after the other, so an event may be missing before a newer segment."""
    for index, row in enumerate(rows):
        if row.first_seq > after + 1:
            return rows[:index]
        after = row.seq
    return rows


_LAST_SEQS = text("""
    SELECT followed.id AS job_id, greatest(
        (SELECT max(seq) FROM job_events WHERE job_id = followed.id),
        (SELECT max(seq) FROM job_segments WHERE job_id = followed.id)
    ) AS seq
    FROM unnest(:job_ids) AS followed(id)
""").bindparams(bindparam("job_ids", type_=ARRAY(UUID)))


def last_seqs(session: Session, job_ids: Sequence[str]) -> dict[str, int]:
    """The last stored sequence number of each of many jobs: two index look-ups a job, however long its log."""
    rows = session.execute(_LAST_SEQS, {"job_ids": [to_uuid("job", job_id) for job_id in job_ids]})
    return {f"job_{row.job_id.hex}": row.seq or 0 for row in rows}


def following(segments: Sequence[Segment], after: int) -> list[Segment]:
    """Those segments that continue right after `after`, without a hole."""
    kept: list[Segment] = []
    for segment in segments:
        if segment.first_seq == after + 1:
            kept.append(segment)
            after = segment.seq
    return kept


def has_output_of(session: Session, job_id: str, attempt: int) -> bool:
    """Whether an attempt left any output."""
    found = select(JobSegment.seq).where(JobSegment.job_id == job_id, JobSegment.attempt == attempt).limit(1)
    return session.scalar(found) is not None


def output_chars(session: Session, job: Job) -> int:
    """How long the output so far is, in characters."""
    end = func.max(JobSegment.char_offset + func.length(JobSegment.text))
    kept = (JobSegment.job_id == job.id, JobSegment.first_seq > job.output_start_seq)
    return session.scalar(select(end).where(*kept)) or 0


def erase(session: Session, job_ids: Sequence[str]) -> None:
    """Delete jobs with their logs."""
    for column in (JobSegment.job_id, JobEvent.job_id, Job.id):
        session.execute(delete(column.class_).where(column.in_(job_ids)))


@dataclass(frozen=True, slots=True)
class Output:
    """What a job has produced so far, from its stored segments. `parts` is None where `text` is all there is to
    it.
    """

    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[Any, ...] = ()
    parts: tuple[Part, ...] | None = None


def read_output(session: Session, job: Job) -> Output:
    statement = (
        select(JobSegment.text, JobSegment.token_ids, JobSegment.logprobs, JobSegment.parts)
        .where(JobSegment.job_id == job.id, JobSegment.first_seq > job.output_start_seq)
        .order_by(JobSegment.seq)
    )
    return assemble(session.execute(statement).all())


def assemble(rows: Sequence[Any]) -> Output:
    """The output whose segments these are, in order."""
    return Output(
        "".join(row.text for row in rows),
        tuple(token for row in rows for token in row.token_ids),
        tuple(entry for row in rows for delta in row.logprobs or () for entry in delta),
        parts=tuple(part for row in rows for delta in row.parts or () for part in delta)
        if any(row.parts is not None for row in rows)
        else None,
    )
