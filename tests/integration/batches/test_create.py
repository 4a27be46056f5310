"""Asking for a batch."""

from decimal import Decimal

import pytest
from pydantic import ValidationError
from sqlalchemy import update

from app.batches import creating
from app.batches.creating import CreateBatch
from app.batches.errors import BatchIdempotencyConflict, InputFileInvalid, InputFileNotFound
from app.batches.states import BatchStatus, OnInvalid
from app.batches.tables import BatchEvent
from app.db import transaction
from app.files import shelf
from app.files.tables import Blob, Purpose, StoredFile
from app.jobs.errors import RequestInvalid
from app.webhooks import secrets
from app.webhooks.errors import SecretMissing
from config.queues import Window
from config.settings import settings
from tests.integration.batches.lines import CHAT, caller_of, upload


@pytest.fixture
def alice(make_account):
    return make_account("alice")


def create(account, key=None, file_id=None, **wanted):
    body = CreateBatch(**{"input_file_id": file_id or upload(account, b"{}\n"), "endpoint": CHAT, **wanted})
    with transaction() as session:
        return creating.create(session, caller_of(account), body, key)


def test_a_batch_is_validated_first_and_ends_with_its_window(alice):
    batch, is_new = create(alice, completion_window="8h", metadata={"a": "b"})
    assert is_new
    assert (batch.status, batch.completion_window, batch.labels) == (
        BatchStatus.VALIDATING,
        Window.EIGHT_HOURS,
        {"a": "b"},
    )
    assert batch.price_factor == Decimal("0.6")
    assert (batch.expires_at - batch.created_at).total_seconds() == 8 * 3600
    with transaction() as session:
        events = session.query(BatchEvent).filter_by(batch_id=batch.id).all()
    assert [(event.seq, event.type) for event in events] == [(1, "batch.validating")]


def test_what_openai_s_clients_leave_out_or_send_as_null_has_a_default(alice):
    batch, _ = create(alice, metadata=None, output_expires_after=None)
    assert (batch.completion_window, batch.labels, batch.on_invalid) == (Window.ONE_DAY, {}, OnInvalid.FAIL)
    assert batch.output_expires_after_seconds is None


def test_the_soonest_window_has_no_end(alice):
    assert create(alice, completion_window="soonest")[0].expires_at is None


def test_a_repeated_key_attaches(alice):
    file_id = upload(alice, b"{}\n")
    first, _ = create(alice, "key", file_id)
    with transaction() as session:
        shelf.drop(session, alice.id, file_id)
    second, is_new = create(alice, "key", file_id)
    assert (second.id, is_new) == (first.id, False)


def test_a_key_with_another_body_is_a_conflict(alice):
    create(alice, "key")
    with pytest.raises(BatchIdempotencyConflict):
        create(alice, "key", dry_run=True)


def test_accounts_do_not_share_keys(alice, make_account):
    assert create(alice, "key")[1]
    assert create(make_account("mallory"), "key")[1]


def test_a_file_must_be_the_account_s(alice, make_account):
    with pytest.raises(InputFileNotFound):
        create(make_account("mallory"), file_id=upload(alice, b"{}\n"))
    with pytest.raises(InputFileNotFound):
        create(alice, file_id="file-nope")


def test_a_file_must_be_for_batches_and_say_something(alice, monkeypatch):
    with pytest.raises(InputFileInvalid, match="empty"):
        create(alice, file_id=upload(alice, b""))
    other = upload(alice, b"{}\n")
    with transaction() as session:
        session.execute(update(StoredFile).where(StoredFile.id == other).values(purpose=Purpose.USER_DATA))
    with pytest.raises(InputFileInvalid, match="purpose"):
        create(alice, file_id=other)
    monkeypatch.setitem(settings().__dict__, "max_batch_bytes", 2)
    with pytest.raises(InputFileInvalid, match="3 bytes"):
        create(alice)


def test_the_input_is_held_while_the_batch_may_need_it(alice):
    file_id = upload(alice, b"{}\n")
    with transaction() as session:
        session.execute(update(Blob).values(touched_at="2020-01-01"))
    create(alice, file_id=file_id)
    with transaction() as session:
        shelf.drop(session, alice.id, file_id)
        assert shelf.drop_orphans(session, 10) == 0


def test_an_endpoint_that_batches_do_not_run_is_refused(alice):
    with pytest.raises(RequestInvalid, match="/v1/chat/completions") as caught:
        create(alice, endpoint="/v1/moderations")
    assert caught.value.param == "endpoint"


def test_a_callback_needs_a_secret(alice):
    with pytest.raises(SecretMissing):
        create(alice, webhook_url="https://example.com/hook")
    with transaction() as session:
        secrets.issue(session, alice.id, None)
    assert create(alice, webhook_url="https://example.com/hook")[0].webhook_url == "https://example.com/hook"


@pytest.mark.parametrize(
    "wrong",
    [
        {"completion_window": "3h"},
        {"output_expires_after": {"anchor": "created_at", "seconds": 60}},
        {"output_expires_after": {"anchor": "now", "seconds": 3600}},
        {"on_invalid": "ignore"},
        {"metadata": {"a": 1}},
        {"priority": 1},
    ],
)
def test_what_cannot_be_had_is_refused(wrong):
    with pytest.raises(ValidationError):
        CreateBatch(input_file_id="file-1", endpoint=CHAT, **wrong)
