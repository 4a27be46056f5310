"""Every error as OpenAI's envelope, and the one table from domain error to HTTP status."""

from math import ceil
from typing import ClassVar, Final

import structlog
from flask import Flask, Response, jsonify, request
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from werkzeug.exceptions import HTTPException

from app.anthropic.errors import MessageUnsupported
from app.api.request_ids import request_id
from app.batches import errors as batches
from app.files import errors as files
from app.gate import errors as gate
from app.jobs import errors as jobs
from app.openai import errors as openai
from app.redis import RedisError
from app.tokens import errors as tokens
from app.webhooks import errors as webhooks

log = structlog.get_logger(__name__)

RETRY_AFTER_SECONDS: Final = "2"

DATABASE_AWAY: Final = (OperationalError, InterfaceError, PoolTimeout)


class ApiError(Exception):
    """Something that only makes sense over HTTP."""

    status: ClassVar[int] = 400
    code: ClassVar[str] = "invalid_request"
    retry_after_seconds: ClassVar[int | None] = None

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class BodyInvalid(ApiError):
    code = "invalid_value"


class KeyMissing(ApiError):
    status = 401
    code = "invalid_api_key"


class OriginForbidden(ApiError):
    status = 403
    code = "origin_forbidden"


class TicketInvalid(ApiError):
    status = 401
    code = "invalid_ticket"


class ServerBusy(ApiError):
    status = 503
    code = "server_busy"


class SyncTimeout(ApiError):
    """A call that waits longer than this server lets it, or would."""

    status = 504
    code = "sync_timeout"


class NotServed(SyncTimeout):
    """A worker may come."""

    retry_after_seconds = 5


class ServerStopping(ApiError):
    status = 503
    code = "server_stopping"


class ClientLeft(ApiError):
    """Nobody reads this but the log."""

    status = 499
    code = "client_closed_request"


STATUS_BY_ERROR: Final[dict[type[Exception], int]] = {
    jobs.JobNotFound: 404,
    jobs.ModelNotFound: 404,
    jobs.RequestInvalid: 400,
    jobs.IdempotencyConflict: 409,
    jobs.JobActive: 409,
    jobs.JobInBatch: 409,
    jobs.IllegalTransition: 409,
    openai.Unsupported: 400,
    MessageUnsupported: 400,
    openai.ResponseNotFound: 404,
    openai.PreviousResponseNotFound: 400,
    openai.PreviousResponseUnusable: 400,
    openai.ItemNotFound: 400,
    openai.OutputReplaced: 409,
    batches.BatchError: 400,
    batches.BatchRejected: 400,
    batches.LineInvalid: 400,
    batches.BatchNotFound: 404,
    batches.LineNotFound: 404,
    batches.BatchActive: 409,
    batches.BatchIdempotencyConflict: 409,
    batches.NothingToRetry: 400,
    batches.ResultsGone: 404,
    batches.InputFileNotFound: 404,
    batches.InputFileInvalid: 400,
    files.FileNotFound: 404,
    files.FileTooLarge: 413,
    files.StorageFull: 403,
    files.StorageUnavailable: 503,
    tokens.ContextLengthExceeded: 400,
    tokens.PromptInvalid: 400,
    gate.Refused: 429,
    gate.RateLimited: 429,
    gate.LineFull: 429,
    gate.AccountFull: 429,
    gate.WindowUnmeetable: 429,
    gate.LineDraining: 503,
    webhooks.UrlRefused: 400,
    webhooks.SecretMissing: 400,
    webhooks.EventTypeUnknown: 400,
    webhooks.EndpointNotFound: 404,
    webhooks.EndpointDisabled: 409,
    webhooks.TooManyEndpoints: 403,
    webhooks.DeliveryNotFound: 404,
    webhooks.MessageNotFound: 404,
}
_TYPE_BY_STATUS: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def init_app(app: Flask) -> None:
    app.register_error_handler(ApiError, _own)
    app.register_error_handler(jobs.JobError, _domain)
    app.register_error_handler(gate.Refused, _refused)
    app.register_error_handler(HTTPException, _http)
    for away in DATABASE_AWAY:
        app.register_error_handler(away, _database_away)
    app.register_error_handler(RedisError, _redis_away)
    app.register_error_handler(Exception, _unexpected)


def envelope(status: int, message: str, code: str, param: str | None = None) -> Response:
    """`{"error": {message, type, code, param}}` with the headers that clients act on."""
    kind = _TYPE_BY_STATUS.get(status, "invalid_request_error" if status < 500 else "server_error")
    response = jsonify(error={"message": message, "type": kind, "code": code, "param": param})
    response.status_code = status
    if status == 409:
        # The SDK retries a 409 unless told not to; no retry of ours can succeed.
        response.headers["x-should-retry"] = "false"
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if status == 503:
        response.headers["Retry-After"] = RETRY_AFTER_SECONDS
    return response


def _own(error: ApiError) -> Response:
    response = envelope(error.status, str(error), error.code, error.param)
    if error.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    elif error.status in {500, 504}:
        # What failed or took too long once will again.
        response.headers["x-should-retry"] = "false"
    return response


def _domain(error: jobs.JobError) -> Response:
    return envelope(STATUS_BY_ERROR[type(error)], str(error), error.code, error.param)


def _refused(error: gate.Refused) -> Response:
    response = _domain(error)
    seconds = error.retry_after_seconds
    if seconds is None:
        response.headers["x-should-retry"] = "false"
    else:
        response.headers["Retry-After"] = str(max(1, ceil(seconds)))
        response.headers["retry-after-ms"] = str(ceil(seconds * 1000))
    return response


def _http(error: HTTPException) -> Response:
    """Flask's and Werkzeug's own: unknown route, wrong method, body too big."""
    status = error.code or 500
    if status == 404:
        message = f"Unknown request URL: {request.method} {request.path}."
    else:
        message = error.description or error.name
    response = envelope(status, message, error.name.lower().replace(" ", "_"))
    if status == 405 and (allowed := dict(error.get_headers()).get("Allow")):
        response.headers["Allow"] = allowed
    return response


def _database_away(error: SQLAlchemyError) -> Response:
    log.warning("database.away", error=str(error))
    return envelope(503, "The database cannot be reached right now.", "database_unavailable")


def _redis_away(error: RedisError) -> Response:
    log.warning("redis.away", error=str(error))
    return envelope(503, "Redis cannot be reached right now.", "redis_unavailable")


def _unexpected(error: Exception) -> Response:
    log.error("request.crashed", path=request.path, exc_info=error)
    message = f"The server failed to handle the request. Quote this id when reporting it: {request_id()}."
    return envelope(500, message, "internal_error")
