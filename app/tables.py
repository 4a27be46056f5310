"""Every feature's tables, imported in one place so that foreign keys resolve and Alembic sees all of them."""

from app.accounts.tables import Account, ApiKey
from app.batches.tables import Batch, BatchEvent, BatchFault
from app.db import Base
from app.files.tables import Blob, StoredFile
from app.jobs.tables import Job, JobEvent, JobSegment, Usage, Worker
from app.line.tables import Line, Share
from app.webhooks.tables import Attempt, Delivery, Endpoint, Message, Secret

metadata = Base.metadata

__all__ = [
    "Account",
    "ApiKey",
    "Attempt",
    "Batch",
    "BatchEvent",
    "BatchFault",
    "Blob",
    "Delivery",
    "Endpoint",
    "Job",
    "JobEvent",
    "JobSegment",
    "Line",
    "Message",
    "Secret",
    "Share",
    "StoredFile",
    "Usage",
    "Worker",
    "metadata",
]
