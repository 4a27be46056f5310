"""`/v1/files`: uploads that never stand in memory, downloads in parts, quotas, expiry."""

import io
from datetime import timedelta

import pytest
from sqlalchemy import func, select, update

from app.api import files
from app.db import transaction
from app.files import shelf
from app.files.storage import storage
from app.files.tables import Blob, StoredFile
from config.settings import settings

FILES = "/v1/files"
LINES = b'{"custom_id": "1"}\n{"custom_id": "2"}\n'


@pytest.fixture
def upload(alice):
    """`upload(content, **fields)` uploads a file as alice, or as another `caller`."""

    def make(content=LINES, caller=alice, filename="lines.jsonl", purpose="batch", **fields):
        form = {"file": (io.BytesIO(content), filename), "purpose": purpose, **fields}
        return caller.post(FILES, data=form, content_type="multipart/form-data")

    return make


@pytest.fixture
def limited(monkeypatch):
    """`limited(max_files=2)` changes settings."""

    def change(**values):
        changed = settings().model_copy(update=values)
        for module in (files, shelf):
            monkeypatch.setattr(module, "settings", lambda: changed)

    return change


def test_an_upload_gives_openais_file_object(upload, alice):
    answer = upload()
    file = answer.json
    assert answer.status_code == 200, file
    assert file["object"] == "file"
    assert (file["bytes"], file["filename"], file["purpose"]) == (len(LINES), "lines.jsonl", "batch")
    assert file["status"] == "processed"
    assert file["expires_at"] - file["created_at"] == 30 * 86_400
    assert alice.get(f"{FILES}/{file['id']}").json == file


def test_a_file_is_downloaded_whole_and_in_parts(upload, alice):
    content = bytes(range(256)) * 1_500  # the test client leaks the temporary file of a larger form
    path = f"{FILES}/{upload(content).json['id']}/content"
    whole = alice.get(path)
    assert whole.data == content
    assert whole.headers["Accept-Ranges"] == "bytes"
    part = alice.get(path, headers={"Range": "bytes=1000-300999"})
    assert (part.status_code, part.data) == (206, content[1000:301_000])
    assert part.headers["Content-Range"] == f"bytes 1000-300999/{len(content)}"
    assert alice.get(path, headers={"Range": "bytes=-10"}).data == content[-10:]
    assert alice.get(path, headers={"Range": f"bytes={len(content)}-"}).status_code == 416
    assert alice.get(path, headers={"If-None-Match": whole.headers["ETag"]}).status_code == 304


def test_an_empty_file_is_a_file(upload, alice):
    file = upload(b"").json
    assert file["bytes"] == 0
    assert alice.get(f"{FILES}/{file['id']}/content").data == b""


def test_another_accounts_file_is_not_found(upload, mallory):
    file_id = upload().json["id"]
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        answer = mallory(method, f"{FILES}/{file_id}{path}")
        assert (answer.status_code, answer.json["error"]["code"]) == (404, "file_not_found")
    assert mallory.get(FILES).json["data"] == []


def test_a_deleted_file_is_gone(upload, alice):
    file_id = upload().json["id"]
    assert alice("DELETE", f"{FILES}/{file_id}").json == {"id": file_id, "object": "file", "deleted": True}
    assert alice.get(f"{FILES}/{file_id}").status_code == 404
    assert alice("DELETE", f"{FILES}/{file_id}").status_code == 404


def test_files_are_listed_in_pages(upload, alice):
    made = [upload(purpose="user_data" if n % 2 else "batch").json["id"] for n in range(4)]
    page = alice.get(f"{FILES}?limit=3").json
    assert [file["id"] for file in page["data"]] == made[:0:-1]
    assert page["has_more"]
    rest = alice.get(f"{FILES}?limit=3&after={page['last_id']}").json
    assert ([file["id"] for file in rest["data"]], rest["has_more"]) == (made[:1], False)
    assert [file["id"] for file in alice.get(f"{FILES}?order=asc&purpose=user_data").json["data"]] == made[1::2]
    assert alice.get(f"{FILES}?limit=10001").json["error"]["param"] == "limit"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"purpose": "vision"}, "purpose"),
        ({"purpose": "batch_output"}, "purpose"),
        ({"purpose": ""}, "purpose"),
        ({"expires_after[seconds]": "3599"}, "expires_after[seconds]"),
        ({"expires_after[seconds]": "2592001"}, "expires_after[seconds]"),
        ({"expires_after[anchor]": "now"}, "expires_after[anchor]"),
        ({"colour": "blue"}, "colour"),
    ],
)
def test_a_bad_field_is_named(upload, fields, param):
    answer = upload(**fields)
    assert (answer.status_code, answer.json["error"]["param"]) == (400, param), answer.json


def test_a_form_without_a_file_is_refused(alice):
    answer = alice.post(FILES, data={"purpose": "batch"}, content_type="multipart/form-data")
    assert (answer.status_code, answer.json["error"]["param"]) == (400, "file")
    assert alice.post(FILES, {"purpose": "batch"}).status_code == 400


def test_a_file_beyond_the_limit_leaves_nothing_behind(upload, alice, limited):
    limited(max_file_bytes=1_000)
    assert upload(b"x" * 1_000).status_code == 200
    # Processes that other tests killed leave theirs to the janitor.
    before = set((settings().var_dir / "uploads").iterdir())
    answer = upload(b"x" * 1_001)
    assert (answer.status_code, answer.json["error"]["code"]) == (413, "file_too_large")
    assert upload(b"x" * 400_000).status_code == 413
    assert len(alice.get(FILES).json["data"]) == 1
    assert set((settings().var_dir / "uploads").iterdir()) == before


def test_an_account_keeps_no_more_than_it_may(upload, caller, limited):
    limited(max_file_bytes_kept=100)
    assert upload(b"x" * 60).status_code == 200
    answer = upload(b"y" * 41)
    assert (answer.status_code, answer.json["error"]["code"]) == (403, "storage_quota_exceeded")
    assert upload(b"y" * 40).status_code == 200
    assert upload(b"z" * 60, caller=caller("mallory")).status_code == 200


def test_an_account_keeps_no_more_files_than_it_may(upload, limited):
    limited(max_files=2)
    assert [upload().status_code for _ in range(3)] == [200, 200, 403]


def test_the_same_content_is_stored_once_and_goes_with_its_last_file(upload, alice, limited):
    limited(blob_grace_seconds=0)
    first, second = upload().json["id"], upload(filename="again.jsonl").json["id"]
    with transaction() as session:
        digest = session.scalar(select(Blob.digest))
        assert session.scalar(select(func.count()).select_from(Blob)) == 1
    alice("DELETE", f"{FILES}/{first}")
    assert _sweep() == 0
    assert alice.get(f"{FILES}/{second}/content").data == LINES
    alice("DELETE", f"{FILES}/{second}")
    assert _sweep() == 1
    with pytest.raises(FileNotFoundError):
        next(storage().read(digest))
    assert alice.get(f"{FILES}/{upload().json['id']}/content").data == LINES


def test_contents_of_an_upload_that_goes_on_are_not_swept(upload, alice):
    alice("DELETE", f"{FILES}/{upload().json['id']}")
    assert _sweep() == 0


def test_an_expired_file_is_gone_before_it_is_dropped(upload, alice):
    file = upload(**{"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}).json
    assert file["expires_at"] - file["created_at"] == 3600
    with transaction() as session:
        session.execute(update(StoredFile).values(expires_at=func.now() - timedelta(seconds=1)))
    assert alice.get(f"{FILES}/{file['id']}").status_code == 404
    assert alice.get(FILES).json["data"] == []
    with transaction() as session:
        assert shelf.drop_expired(session, 10) == 1


def test_a_file_without_an_expiry_stays(upload):
    assert "expires_at" not in upload(purpose="user_data").json
    with transaction() as session:
        assert shelf.drop_expired(session, 10) == 0


def _sweep():
    with transaction() as session:
        return shelf.drop_orphans(session, 10)
