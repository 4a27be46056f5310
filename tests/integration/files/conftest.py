"""A server that speaks like S3, and what reaches it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

BUCKET = "longhaul"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """Where it is."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket_of(s3: str, monkeypatch: Any) -> Callable[..., Any]:
    """`bucket_of(prefix="")` gives the storage of an empty bucket."""
    from app.files.bucket import Bucket, connect

    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    client = connect(s3, "us-east-1")
    client.create_bucket(Bucket=BUCKET)
    for found in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        client.delete_object(Bucket=BUCKET, Key=found["Key"])
    return lambda prefix="": Bucket(client, BUCKET, prefix)
