"""Contents in a folder and in a bucket: one suite for both."""

import hashlib
import threading

import httpx
import pytest

from app.files import bucket
from app.files.bucket import Bucket, connect
from app.files.errors import StorageUnavailable
from app.files.folder import Folder
from tests.integration.api.conftest import running_gunicorn
from tests.integration.files.conftest import BUCKET, CREDENTIALS
from workers.embedded.server import free_port

MEGABYTE = 1 << 20
SMALL_BLOCK = 1_000


@pytest.fixture(params=["folder", "bucket"])
def store(request, tmp_path, monkeypatch):
    if request.param == "folder":
        return Folder(tmp_path / "files")
    monkeypatch.setattr(bucket, "BLOCK_BYTES", SMALL_BLOCK)
    return request.getfixturevalue("bucket_of")("files/")


@pytest.fixture
def put(store, tmp_path):
    """`put(content)` stores it; returns its digest."""

    def keep(content):
        digest = hashlib.sha256(content).hexdigest()
        local = tmp_path / f"local-{threading.get_ident()}"
        local.write_bytes(content)
        store.put(digest, local)
        return digest

    return keep


CONTENT = bytes(range(250)) * 12  # three blocks


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, None), (0, 3_000), (0, 1), (999, 1_001), (1_000, 2_000), (2_999, 3_000), (2_500, None), (0, 9_000)],
)
def test_a_content_is_read_whole_and_in_parts(store, put, start, end):
    assert b"".join(store.read(put(CONTENT), start, end)) == CONTENT[start:end]


@pytest.mark.parametrize(("start", "end"), [(3_000, None), (5_000, None), (3_000, 4_000), (7, 7), (0, 0)])
def test_a_part_that_holds_nothing_is_empty(store, put, start, end):
    assert b"".join(store.read(put(CONTENT), start, end)) == b""


def test_an_empty_content_is_a_content(store, put):
    assert b"".join(store.read(put(b""))) == b""


def test_a_content_that_is_there_is_stored_again_without_harm(store, put):
    assert put(CONTENT) == put(CONTENT)
    assert b"".join(store.read(put(CONTENT))) == CONTENT


def test_what_was_deleted_or_never_stored_is_not_found(store, put):
    digest = put(CONTENT)
    store.delete(digest)
    store.delete(digest)
    for absent in (digest, "0" * 64):
        with pytest.raises(FileNotFoundError):
            next(store.read(absent))
    assert b"".join(store.read(put(CONTENT))) == CONTENT


def test_many_threads_store_and_read_the_same_content(store, put):
    seen = []
    threads = [
        threading.Thread(target=lambda: seen.append(b"".join(store.read(put(CONTENT))))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [CONTENT] * 8


def test_a_large_content_goes_to_a_bucket_in_parts_and_comes_in_blocks(bucket_of, tmp_path):
    store, size = bucket_of(), 40 * MEGABYTE
    local = tmp_path / "large"
    with local.open("wb") as file:
        file.truncate(size)
    store.put("large", local)
    assert store._client.head_object(Bucket=BUCKET, Key="large")["ETag"].endswith('-3"')
    sizes = [len(block) for block in store.read("large")]
    assert (sum(sizes), max(sizes)) == (size, bucket.BLOCK_BYTES)


def test_a_prefix_keeps_two_installations_apart(bucket_of, tmp_path):
    local = tmp_path / "local"
    local.write_bytes(CONTENT)
    bucket_of("one/").put("digest", local)
    with pytest.raises(FileNotFoundError):
        next(bucket_of("two/").read("digest"))


def test_a_bucket_that_is_away_or_unknown_says_so(s3, bucket_of, tmp_path, monkeypatch):
    monkeypatch.setattr(
        bucket, "_OPTIONS", bucket._OPTIONS.merge(bucket.Config(retries={"total_max_attempts": 1}))
    )
    local = tmp_path / "local"
    local.write_bytes(CONTENT)
    away = Bucket(connect(f"http://127.0.0.1:{free_port()}", "us-east-1"), BUCKET)
    unknown = Bucket(connect(s3, "us-east-1"), "of-nobody")
    for store in (away, unknown):
        for verb in (
            lambda s: s.put("digest", local),
            lambda s: next(s.read("digest")),
            lambda s: s.delete("digest"),
        ):
            with pytest.raises(StorageUnavailable):
                verb(store)


def test_the_web_server_keeps_files_in_a_bucket(services, make_key, s3, bucket_of):
    content = hashlib.shake_128(b"seed").digest(40 * MEGABYTE)
    options = {"file_bucket": BUCKET, "file_prefix": "web/", "file_endpoint_url": s3}
    headers = {"Authorization": f"Bearer {make_key()}"}
    with (
        running_gunicorn({**services, **CREDENTIALS}, **options, file_region="us-east-1") as (server, _),
        httpx.Client(base_url=f"http://{server}/v1", headers=headers, trust_env=False, timeout=60) as client,
    ):
        file = client.post("/files", data={"purpose": "user_data"}, files={"file": ("big", content)}).json()
        url = f"/files/{file['id']}/content"
        assert client.get(url).content == content
        assert client.get(url, headers={"Range": "bytes=5000000-"}).content == content[5_000_000:]
        digest = hashlib.sha256(content).hexdigest()
        assert b"".join(bucket_of("web/").read(digest)) == content
        bucket_of("web/").delete(digest)
        bucket_of("web/")._client.delete_bucket(Bucket=BUCKET)
        answer = client.post("/files", data={"purpose": "user_data"}, files={"file": ("other", b"x")})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage_unavailable")
