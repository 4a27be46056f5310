"""The output of many jobs, in one read."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.jobs.log import Output, assemble
from app.jobs.tables import Job, JobSegment


def read_outputs(session: Session, jobs: Sequence[Job]) -> dict[str, Output]:
    """By job id; of each of them."""
    rows: dict[str, list[Any]] = defaultdict(list)
    statement = (
        select(JobSegment.job_id, JobSegment.text, JobSegment.token_ids, JobSegment.logprobs, JobSegment.parts)
        .join(Job, Job.id == JobSegment.job_id)
        .where(Job.id.in_([job.id for job in jobs]), JobSegment.first_seq > Job.output_start_seq)
        .order_by(JobSegment.job_id, JobSegment.seq)
    )
    for row in session.execute(statement):
        rows[row.job_id].append(row)
    return {job.id: assemble(rows[job.id]) for job in jobs}
