"""Contents in a bucket of S3, or of what speaks like it: a `Storage`. Credentials come from where AWS's own
tools look for them. A rule of the bucket should drop multipart uploads that a killed process left unfinished.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import structlog
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    IncompleteReadError,
    ReadTimeoutError,
    ResponseStreamingError,
)
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from app.files.errors import StorageUnavailable

log = structlog.get_logger(__name__)

# Read by blocks: no connection stays open while a client takes its time, and one that breaks costs a block.
BLOCK_BYTES: Final = 4 << 20
PART_BYTES: Final = 16 << 20
_IN_PARTS: Final = TransferConfig(
    multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, use_threads=False
)
# Checksums only where they are required: not all that speaks S3 knows the newer ones.
_OPTIONS: Final = Config(
    connect_timeout=5,
    read_timeout=30,
    retries={"mode": "standard", "total_max_attempts": 4},
    max_pool_connections=50,
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)
# While a block comes; whatever happens before, the client itself tries again.
_BROKEN: Final = (IncompleteReadError, ReadTimeoutError, ResponseStreamingError)
_ABSENT: Final = ("404", "NoSuchKey")


def connect(endpoint_url: str, region: str) -> Any:
    """A client of S3, or of what is at `endpoint_url`."""
    return Session().client(
        "s3", endpoint_url=endpoint_url or None, region_name=region or None, config=_OPTIONS
    )


class Bucket:
    """Raises `StorageUnavailable` where the bucket fails us."""

    def __init__(self, client: Any, name: str, prefix: str = "") -> None:
        self._client = client
        self._name = name
        self._prefix = prefix

    def put(self, digest: str, local: Path) -> None:
        with _available():
            if not self._has(digest):
                self._client.upload_file(str(local), self._name, self._key(digest), Config=_IN_PARTS)

    def _has(self, digest: str) -> bool:
        try:
            self._client.head_object(Bucket=self._name, Key=self._key(digest))
        except ClientError as error:
            if _code(error) in _ABSENT:
                return False
            raise
        return True

    def read(self, digest: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        size = None
        while (end is None or start < end) and (size is None or start < size):
            stop = start + BLOCK_BYTES if end is None else min(start + BLOCK_BYTES, end)
            with _available():
                block, size = self._block(digest, start, stop)
            start = stop
            yield block

    @retry(
        retry=retry_if_exception_type(_BROKEN),
        stop=stop_after_attempt(3),
        wait=wait_random_exponential(max=1),
        reraise=True,
    )
    def _block(self, digest: str, start: int, stop: int) -> tuple[bytes, int]:
        """A part of a content, and the whole's size."""
        try:
            answer = self._client.get_object(
                Bucket=self._name, Key=self._key(digest), Range=f"bytes={start}-{stop - 1}"
            )
        except ClientError as error:
            if _code(error) in _ABSENT:
                raise FileNotFoundError(digest) from error
            if _code(error) == "InvalidRange":
                return b"", start
            raise
        return answer["Body"].read(), int(answer["ContentRange"].rpartition("/")[2])

    def delete(self, digest: str) -> None:
        with _available():
            self._client.delete_object(Bucket=self._name, Key=self._key(digest))

    def _key(self, digest: str) -> str:
        return f"{self._prefix}{digest}"


def _code(error: Any) -> str:
    return str(error.response["Error"]["Code"])


@contextmanager
def _available() -> Iterator[None]:
    try:
        yield
    except (BotoCoreError, ClientError, Boto3Error) as error:
        log.warning("storage.away", error=str(error))
        raise StorageUnavailable from error
