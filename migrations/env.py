"""How Alembic reaches the database. Migrations run while the old code still serves, so a lock that does not
come soon is given up rather than waited for.
"""

from alembic import context
from sqlalchemy import create_engine

from app.db import sqlalchemy_url
from app.tables import metadata
from config.settings import settings

LOCK_TIMEOUT = "4s"
STATEMENT_TIMEOUT = "60s"


def run() -> None:
    engine = create_engine(
        sqlalchemy_url(settings().database_url),
        connect_args={"options": f"-c lock_timeout={LOCK_TIMEOUT} -c statement_timeout={STATEMENT_TIMEOUT}"},
    )
    with engine.connect() as connection:
        context.configure(connection=connection, target_metadata=metadata, compare_server_default=False)
        with context.begin_transaction():
            # Two releases at once: the second waits, then finds nothing to do.
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7305811)")
            context.run_migrations()
    engine.dispose()


run()
