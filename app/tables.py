"""Every feature's tables, imported in one place so that foreign keys resolve and Alembic sees all of them."""

from app.accounts.tables import Account, ApiKey
from app.db import Base
from app.files.tables import Blob, StoredFile
from app.jobs.tables import Job, JobEvent, JobSegment, Usage, Worker
from app.line.tables import Line, Share

metadata = Base.metadata

__all__ = [
    "Account",
    "ApiKey",
    "Blob",
    "Job",
    "JobEvent",
    "JobSegment",
    "Line",
    "Share",
    "StoredFile",
    "Usage",
    "Worker",
    "metadata",
]
