"""`client.files`, unmodified."""

import pytest
from openai import BadRequestError, NotFoundError

LINES = b"".join(b'{"custom_id": "line-%d"}\n' % number for number in range(20_000))


def test_a_file_is_uploaded_found_read_and_deleted(client):
    file = client.files.create(file=("lines.jsonl", LINES), purpose="batch")
    assert (file.bytes, file.filename, file.purpose) == (len(LINES), "lines.jsonl", "batch")
    assert client.files.retrieve(file.id) == file
    assert client.files.content(file.id).read() == LINES
    assert client.files.delete(file.id).deleted
    with pytest.raises(NotFoundError):
        client.files.retrieve(file.id)


def test_a_list_goes_from_page_to_page(client):
    expiry = {"anchor": "created_at", "seconds": 3600}
    made = [
        client.files.create(file=(f"{number}.txt", b"x"), purpose="user_data", expires_after=expiry)
        for number in range(5)
    ]
    listed = list(client.files.list(purpose="user_data", limit=2))
    assert listed == made[::-1]
    assert all(file.expires_at - file.created_at == 3600 for file in listed)
    for file in made:
        client.files.delete(file.id)


def test_a_purpose_that_is_not_served_is_named(client):
    with pytest.raises(BadRequestError) as refusal:
        client.files.create(file=("picture.png", b"x"), purpose="vision")
    assert refusal.value.param == "purpose"
