"""Storing output: one statement for everybody's, fenced by each job's lease."""

import uuid

import pytest
from sqlalchemy.exc import DataError

from app.db import transaction
from app.jobs.lifecycle import Prefill, complete
from app.jobs.log import last_seqs, read_log, read_output, store_segments
from tests.integration.jobs.conftest import segment


def test_one_statement_stores_everybodys_output_and_names_who_lost_the_lease(make_job, claim, do):
    mine, other = claim(make_job()).job, claim(make_job()).job
    stale = str(uuid.uuid4())
    held = do(store_segments, [segment(mine, 3, "mine"), segment(other, 3, "late", lease_id=stale)])
    assert held == {mine.id}
    with transaction() as session:
        assert read_output(session, mine).text == "mine"
        assert read_output(session, other).text == ""


def test_a_settled_job_takes_no_more_output(make_job, claim, store, do):
    job = claim(make_job()).job
    do(complete, job.id, job.lease_id, Prefill())
    assert store(job, 4, "late") == set()


def test_text_that_postgres_cannot_carry_is_refused_whole(make_job, claim, do):
    job = claim(make_job()).job
    with pytest.raises((DataError, ValueError)):
        do(store_segments, [segment(job, 3, "a\x00b")])


def test_the_log_is_read_in_order_without_holes_and_in_pages(make_job, claim, store):
    job = claim(make_job()).job
    for seq, text in ((3, "a"), (4, "b"), (6, "unreachable")):
        store(job, seq, text)
    with transaction() as session:
        assert [row.seq for row in read_log(session, job.id, 0, 10)] == [1, 2, 3, 4]
        assert [row.seq for row in read_log(session, job.id, 2, 1)] == [3]
        assert last_seqs(session, [job.id]) == {job.id: 6}


def test_token_ids_come_back_as_they_went_in(make_job, claim, store):
    job = claim(make_job()).job
    store(job, 3, "héllo 🦊")
    with transaction() as session:
        assert read_output(session, job).token_ids == tuple(ord(char) for char in "héllo 🦊")
