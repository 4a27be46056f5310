"""Writing the ledger: a row for each attempt when it ends, whatever ended it, in the transaction that ends it.
The rows of a job add up to the usage that it shows; the one that ends the job is final, and there is one such.
Reading and booking it is `app.line.booking`'s.
"""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import ARRAY, bindparam, text, update
from sqlalchemy.dialects.postgresql import UUID
from sqlalchemy.orm import Session

from app.ids import PrefixedId, to_uuid
from app.jobs.tables import Job, Usage

# An attempt used what the job has now and no earlier attempt was charged for. A job that ends while it waits
# has its last attempt's row already: that becomes the final one.
_RECORD_WHERE: Final = """
    INSERT INTO usage (job_id, attempt, account_id, key_id, model, tier, completion_window, price_factor,
        input_tokens, cached_tokens, output_tokens, is_final, reserved_tokens, settled_tokens, settled_at,
        charged_tokens, run_seconds, wait_seconds, estimated_wait_seconds)
    SELECT job.id, job.attempt, job.account_id, job.key_id, job.model, job.tier, job.completion_window,
        job.price_factor, job.input_tokens - earlier.input_tokens, job.cached_tokens - earlier.cached_tokens,
        made.output_tokens, job.finished_at IS NOT NULL, job.reserved_tokens,
        CASE WHEN job.finished_at IS NOT NULL THEN job.input_tokens + job.output_tokens END,
        job.finished_at, CASE WHEN job.finished_at IS NOT NULL THEN job.charged_tokens ELSE 0 END,
        coalesce(extract(epoch FROM now() - job.claimed_at), 0),
        extract(epoch FROM job.started_at - job.created_at),
        extract(epoch FROM job.estimated_start_at - job.created_at)
    FROM jobs job,
        LATERAL (
            SELECT coalesce(sum(input_tokens), 0) AS input_tokens,
                coalesce(sum(cached_tokens), 0) AS cached_tokens
            FROM usage WHERE job_id = job.id AND attempt < job.attempt
        ) earlier,
        LATERAL (
            SELECT coalesce(sum(octet_length(token_ids)) / 4, 0) AS output_tokens FROM job_segments
            WHERE job_id = job.id AND attempt = job.attempt AND first_seq > job.output_start_seq
        ) made
    WHERE {which}
    ON CONFLICT (job_id, attempt) DO UPDATE SET is_final = EXCLUDED.is_final,
        settled_tokens = EXCLUDED.settled_tokens, settled_at = EXCLUDED.settled_at,
        charged_tokens = EXCLUDED.charged_tokens, is_booked = false
"""
_RECORD: Final = text(_RECORD_WHERE.format(which="job.id = :job_id")).bindparams(
    bindparam("job_id", type_=PrefixedId("job"))
)
_RECORD_MANY: Final = text(_RECORD_WHERE.format(which="job.id = ANY(:job_ids)")).bindparams(
    bindparam("job_ids", type_=ARRAY(UUID))
)


def record(session: Session, job: Job) -> None:
    """Call when an attempt, or the job, has ended."""
    session.connection().execute(_RECORD, {"job_id": job.id})


def record_many(session: Session, job_ids: Sequence[str]) -> None:
    """As `record`, for jobs that ended together."""
    session.connection().execute(_RECORD_MANY, {"job_ids": [to_uuid("job", job_id) for job_id in job_ids]})


def void_output(session: Session, job_id: str) -> None:
    """The output so far is thrown away: nobody pays for it."""
    session.execute(
        update(Usage)
        .where(Usage.job_id == job_id)
        .values(output_tokens=0, is_booked=False)
        .execution_options(synchronize_session=False)
    )
