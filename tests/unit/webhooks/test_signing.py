"""Signatures, as the receivers' own libraries verify them."""

import base64
from datetime import UTC, datetime, timedelta

import orjson
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from openai import InvalidWebhookSignatureError, OpenAI
from standardwebhooks import Webhook, WebhookVerificationError

from app.webhooks import signing
from app.webhooks.tables import Scheme

ID = "evt_0198d2f0a3b47c5d8e9f000000000001"
BODY = orjson.dumps(
    {
        "id": ID,
        "object": "event",
        "created_at": 1_790_000_000,
        "type": "response.completed",
        "data": {"id": "resp_1", "note": "naïve 🦆"},
    }
)


def sent(*secrets, at=None, body=BODY):
    return signing.headers(ID, body, secrets, at or datetime.now(UTC))


def by_openai(secret, headers, body=BODY):
    return OpenAI(api_key="none").webhooks.unwrap(body, headers, secret=secret)


def by_standard(secret, headers, body=BODY):
    return Webhook(secret).verify(body, headers)


def by_ed25519(public_key, headers, body=BODY):
    """As docs/webhooks.md tells receivers to."""
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key.removeprefix("whpk_")))
    signed = b".".join((headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body))
    for part in headers["webhook-signature"].split(" "):
        version, _, signature = part.partition(",")
        if version == "v1a":
            key.verify(base64.b64decode(signature), signed)
            return
    raise InvalidSignature


def test_a_signature_is_that_of_the_specification():
    headers = signing.headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        b'{"test": 2432232314}',
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        datetime.fromtimestamp(1_614_265_330.9, UTC),
    )
    assert headers["webhook-timestamp"] == "1614265330"
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_openais_client_unwraps_a_message():
    secret = signing.new_secret(Scheme.HMAC)
    event = by_openai(secret, sent(secret))
    assert (event.id, event.type, event.data.id) == (ID, "response.completed", "resp_1")
    assert type(event).__name__ == "ResponseCompletedWebhookEvent"


def test_the_reference_library_verifies_a_message():
    secret = signing.new_secret(Scheme.HMAC)
    assert by_standard(secret, sent(secret)) == orjson.loads(BODY)


@pytest.mark.parametrize("verify", [by_openai, by_standard])
def test_after_a_rotation_both_secrets_verify_and_no_other(verify):
    old, new, other = (signing.new_secret(Scheme.HMAC) for _ in range(3))
    headers = sent(new, old)
    assert headers["webhook-signature"].count("v1,") == 2
    assert verify(old, headers)
    assert verify(new, headers)
    with pytest.raises((InvalidWebhookSignatureError, WebhookVerificationError)):
        verify(other, headers)


@pytest.mark.parametrize("verify", [by_openai, by_standard])
@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, BODY.replace(b"resp_1", b"resp_2")),
        ({"webhook-id": ID.replace("1", "2")}, BODY),
        ({"webhook-timestamp": str(int(datetime.now(UTC).timestamp()) + 60)}, BODY),
    ],
)
def test_what_was_changed_on_the_way_is_refused(verify, headers, body):
    secret = signing.new_secret(Scheme.HMAC)
    with pytest.raises((InvalidWebhookSignatureError, WebhookVerificationError)):
        verify(secret, {**sent(secret), **headers}, body)


@pytest.mark.parametrize("verify", [by_openai, by_standard])
def test_the_time_is_that_of_the_attempt_so_that_a_replay_is_refused(verify):
    secret = signing.new_secret(Scheme.HMAC)
    with pytest.raises((InvalidWebhookSignatureError, WebhookVerificationError)):
        verify(secret, sent(secret, at=datetime.now(UTC) - timedelta(minutes=6)))


def test_an_ed25519_signature_verifies_with_the_public_key_alone():
    secret = signing.new_secret(Scheme.ED25519)
    public_key = signing.public_key(secret)
    assert public_key.startswith("whpk_")
    by_ed25519(public_key, sent(secret))
    with pytest.raises(InvalidSignature):
        by_ed25519(public_key, sent(secret), BODY + b" ")
    with pytest.raises(InvalidSignature):
        by_ed25519(signing.public_key(signing.new_secret(Scheme.ED25519)), sent(secret))


def test_a_receiver_may_move_from_hmac_to_ed25519_without_a_gap():
    hmac, ed25519 = signing.new_secret(Scheme.HMAC), signing.new_secret(Scheme.ED25519)
    headers = sent(ed25519, hmac)
    by_ed25519(signing.public_key(ed25519), headers)
    assert by_openai(hmac, headers)
    assert by_standard(hmac, headers)


def test_a_shared_secret_has_no_public_key_and_32_random_bytes():
    secret = signing.new_secret(Scheme.HMAC)
    assert signing.public_key(secret) is None
    assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32
    assert secret != signing.new_secret(Scheme.HMAC)
