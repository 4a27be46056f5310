"""Joining the line, between a parsed body and its answer: what was submitted before is attached to, the gate
lets in, the job is stored, its worker is rung. It knows no status code.
"""

import re
from dataclasses import dataclass, replace
from typing import Final

import structlog
from flask import Response, after_this_request, request

from app import dispatch, drafting
from app.accounts.limits import Caller
from app.api import auth
from app.api.errors import BodyInvalid
from app.api.rates import headers
from app.db import transaction
from app.gate import admission
from app.gate.admission import Admission, Entry
from app.gate.offline import Breaker, LocalBound
from app.jobs import submission
from app.jobs.requests import JobRequest
from app.jobs.submission import Spoken
from app.jobs.tables import Job
from app.line.estimates import Ahead
from app.redis import RedisError, quick_client
from app.webhooks.registering import require_callback
from app.webhooks.secrets import require_account_secret
from config.settings import settings

log = structlog.get_logger(__name__)

_KEY: Final = re.compile(r"[\x20-\x7e]{1,255}")

_breaker: Final = Breaker()
_offline: Final = LocalBound()


@dataclass(frozen=True, slots=True)
class Joined:
    """`ahead` is what of its account waits before the job, and the wait that was foretold, where the gate was
    asked.
    """

    job: Job
    is_new: bool
    ahead: Ahead | None = None
    estimated_wait_seconds: float | None = None


def idempotency_key() -> str | None:
    """The request's. Raises `BodyInvalid`."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not _KEY.fullmatch(key):
        raise BodyInvalid("'Idempotency-Key' must be 1 to 255 printable ASCII characters.", "Idempotency-Key")
    return key


def submit(
    wanted: JobRequest,
    idempotency_key: str | None,
    spoken: Spoken = Spoken(),  # noqa: B008 - frozen
    job_id: str | None = None,
) -> Joined:
    """The job, and whether it is new; `job_id` is to be its id then. Raises what `app.jobs.errors`,
    `app.tokens.errors`, `app.webhooks.errors` and `app.gate.errors` have for it.
    """
    caller = auth.caller()
    request_hash = drafting.hash_of(wanted, spoken)
    if idempotency_key is not None and (job := _earlier(caller, idempotency_key, request_hash)):
        return Joined(job, is_new=False)
    draft = drafting.draft(
        wanted, caller, spoken, request_hash=request_hash, idempotency_key=idempotency_key, job_id=job_id
    )
    if draft.webhook_url is not None:
        _require_callback(draft.webhook_url, caller)
    return _join(draft, caller)


def _require_callback(url: str, caller: Caller) -> None:
    require_callback(url, "webhook_url")
    with transaction() as session:
        require_account_secret(session, caller.account_id)


def _earlier(caller: Caller, idempotency_key: str, request_hash: bytes) -> Job | None:
    """A repetition is answered whatever the line and the rates are like."""
    with transaction() as session:
        return submission.find_submitted(session, caller.account_id, idempotency_key, request_hash)


def _join(draft: submission.Draft, caller: Caller) -> Joined:
    entry = _entry(draft, caller)
    admitted = _admit(entry)
    placed_on = admitted.worker_id if admitted else None
    wait = admitted.estimated_wait_seconds if admitted else None
    is_kept = False
    try:
        with transaction() as session:
            # It is one statement: without BEGIN and COMMIT around it, one round trip and not three.
            session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
            job, is_new = submission.submit(
                session, replace(draft, placed_on=placed_on, estimated_wait_seconds=wait)
            )
        is_kept = is_new
    finally:
        if admitted and not is_kept:
            _release(entry, placed_on)
    if is_new and placed_on:
        dispatch.ring(job.id, placed_on, draft.tier)
    elif is_new and admitted:
        dispatch.wake()
    return Joined(job, is_new, admitted.ahead if admitted else None, wait)


def _admit(entry: Entry) -> Admission | None:
    """None: let in by this process alone, since Redis is away. Raises `Refused`."""
    if _breaker.may_try():
        try:
            admitted, refused = admission.ask(quick_client(), entry)
        except (RedisError, OSError) as error:
            if _breaker.failed():
                log.warning("admission.offline", error=str(error))
        else:
            _breaker.worked()
            after_this_request(lambda response: _with_rates(response, admitted))
            if refused:
                raise refused
            return admitted
    allowed = settings().offline_requests_per_minute
    own = entry.limits.requests_per_minute
    _offline.admit(entry.account_id, min(allowed, own) if allowed and own else allowed or own)
    return None


def _with_rates(response: Response, admitted: Admission) -> Response:
    response.headers.update(headers(admitted.rates))
    return response


def _release(entry: Entry, worker_id: str | None) -> None:
    try:
        admission.release(quick_client(), entry, worker_id)
    except (RedisError, OSError) as error:
        # The reservation expires, and the line is counted anew.
        log.warning("release.failed", job_id=entry.job_id, error=str(error))


def _entry(draft: submission.Draft, caller: Caller) -> Entry:
    return Entry(
        job_id=draft.job_id,
        account_id=draft.account_id,
        key_id=draft.key_id,
        model=draft.model,
        tier=draft.tier,
        window=draft.completion_window,
        tokens=draft.reserved_tokens,
        is_long=draft.is_long,
        limits=caller.limits[draft.tier],
    )
