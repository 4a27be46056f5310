"""The lines of a batch join the line together, whatever models they are of: all of them, or none."""

from collections.abc import Sequence

import structlog

from app.gate import admission
from app.gate.admission import BulkEntry
from app.gate.errors import Refused
from app.redis import RedisError, client

log = structlog.get_logger(__name__)


def join(batch_id: str, entries: Sequence[BulkEntry]) -> Refused | None:
    """Why they may not. While Redis is away they may: nobody counts then, and the line is counted anew."""
    try:
        for number, entry in enumerate(entries):
            refused = admission.admit_bulk(client(), entry)
            if refused is not None:
                leave(batch_id, entries[:number])
                return refused
    except (RedisError, OSError) as error:
        log.warning("admission.offline", batch_id=batch_id, error=str(error))
    return None


def leave(batch_id: str, entries: Sequence[BulkEntry]) -> None:
    """As if they never came."""
    try:
        for entry in entries:
            admission.release_bulk(client(), entry)
    except (RedisError, OSError) as error:
        log.warning("release.failed", batch_id=batch_id, error=str(error))
