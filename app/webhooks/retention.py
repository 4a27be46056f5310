"""How long webhooks are kept: messages with their deliveries and attempts, secrets that were rotated, and
endpoints that a `webhook_url` made. Functions take the caller's session and never commit.
"""

from datetime import timedelta
from typing import Final

from sqlalchemy import ARRAY, bindparam, text
from sqlalchemy.dialects.postgresql import UUID
from sqlalchemy.orm import Session

# Endpoints of a `webhook_url` that nothing is told any more. Two steps: a delivery made while the first waits
# for the lock is seen by the second.
_IDLE: Final = text("""
    SELECT id FROM webhook_endpoints WHERE origin = 'request' AND created_at < now() - :age
        AND NOT EXISTS (SELECT FROM webhook_deliveries WHERE endpoint_id = webhook_endpoints.id)
    LIMIT :limit FOR UPDATE SKIP LOCKED
""")
_FORGET: Final = text("""
    DELETE FROM webhook_endpoints WHERE id = ANY(:ids)
        AND NOT EXISTS (SELECT FROM webhook_deliveries WHERE endpoint_id = webhook_endpoints.id)
""").bindparams(bindparam("ids", type_=ARRAY(UUID)))
_DROP: Final = text("""
    DELETE FROM webhook_messages WHERE id IN (
        SELECT id FROM webhook_messages message WHERE created_at < now() - :age AND NOT EXISTS (
            SELECT FROM webhook_deliveries WHERE message_id = message.id AND state = 'pending')
        ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED)
""")
_EXPIRE: Final = text("DELETE FROM webhook_secrets WHERE expires_at < now() - :age")


def drop_old(session: Session, age: timedelta, limit: int) -> None:
    """Drop messages with their deliveries, but for pending ones, and what nothing needs any more."""
    session.execute(_DROP, {"age": age, "limit": limit})
    session.execute(_EXPIRE, {"age": age})
    ids = session.scalars(_IDLE, {"age": age, "limit": limit}).all()
    session.execute(_FORGET, {"ids": ids})
