"""Waiting jobs by the thousand, straight into the tables: what a long line looks like, without the time that it
takes to submit one. The rows are those that a submission of a batch line leaves. It knows nothing of what is
measured.
"""

from dataclasses import dataclass
from typing import Final

import orjson
from sqlalchemy import Engine, bindparam, text

from app.ids import PrefixedId
from app.jobs.requests import JobRequest
from bench.harness import draft_of

AT_ONCE: Final = 50_000  # rows of one transaction


@dataclass(frozen=True, slots=True)
class Lines:
    """`count` batch lines of one account, each of `least` to `most` output tokens."""

    account_id: str
    model: str
    count: int
    least: int
    most: int


# The ids ascend with the order of the line. MATERIALIZED: each row's random length is drawn once.
_INSERT: Final = text("""
    WITH line AS MATERIALIZED (
        SELECT uuidv7() AS id, :least + floor(random() * (:most - :least + 1))::int AS tokens,
            now() - make_interval(secs => (:count - number) * 0.001) AS created_at
        FROM generate_series(1, :count) AS number
    ), job AS (
        INSERT INTO jobs (id, account_id, kind, model, tier, status, request, metadata, request_hash,
            created_at, completion_window, price_factor, prompt_tokens, reserved_tokens, due_at, expires_at,
            order_at)
        SELECT line.id, :account_id, :kind, :model, :tier, 'queued',
            jsonb_set(CAST(:request AS jsonb), '{max_output_tokens}', to_jsonb(tokens)), '{}', :request_hash,
            created_at, :completion_window, :price_factor, :prompt_tokens, :prompt_tokens + tokens,
            created_at + interval '24h', created_at + interval '24h', created_at + interval '24h'
        FROM line RETURNING id
    )
    INSERT INTO job_events (job_id, seq, first_seq, type, data)
    SELECT id, 1, 1, 'job.queued', '{"attempt": 0}' FROM job
""").bindparams(bindparam("account_id", type_=PrefixedId("acct")))


def insert(engine: Engine, lines: Lines) -> None:
    """Put them into the line, as its last."""
    request = JobRequest(
        model=lines.model, tier="batch", completion_window="24h", input="Tell me about ships.", ignore_eos=True
    )
    draft = draft_of(lines.account_id, request)
    values = {
        **{name: getattr(draft, name) for name in _AS_DRAFTED},
        "request": orjson.dumps(draft.request).decode(),
        "least": lines.least,
        "most": lines.most,
    }
    for done in range(0, lines.count, AT_ONCE):
        with engine.begin() as connection:
            connection.execute(_INSERT, {**values, "count": min(AT_ONCE, lines.count - done)})


_AS_DRAFTED: Final = (
    "account_id", "kind", "model", "tier", "request_hash", "completion_window", "price_factor", "prompt_tokens",
)  # fmt: skip
