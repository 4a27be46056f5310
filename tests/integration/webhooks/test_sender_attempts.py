"""One attempt, at receivers that fail in every way."""

import asyncio
import ssl
import time
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from standardwebhooks import Webhook

from app.webhooks import sending, signing
from app.webhooks.sending import Letter, Sender
from app.webhooks.tables import Scheme
from tests.receiver import Receiver, answer, close, drip, hang, raw

BODY = '{"id":"evt_1","object":"event","type":"webhook.test","data":{"text":"ü"}}'
SECRETS = tuple(signing.new_secret(Scheme.HMAC) for _ in range(2))


@pytest.fixture
def receiver(configure):
    configure(webhook_allowed_hosts=["127.0.0.0/8", "localhost"], webhook_timeout_seconds=2)
    with Receiver() as opened:
        yield opened


CONTEXT = ssl.create_default_context()


def send(url, secrets=SECRETS, context=CONTEXT, resolver=None):
    return asyncio.run(Sender(context, resolver).send(Letter(url, "evt_1", BODY, secrets)))


def test_a_receiver_gets_the_signed_body_once(receiver):
    outcome = send(receiver.url("/a/b?c=d"))
    assert (outcome.answer.status_code, outcome.answer.error) == (200, None)
    [got] = receiver.received
    assert got.path == "/a/b?c=d"
    assert got.body == BODY.encode()
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert got.headers["content-type"] == "application/json"
    assert got.headers["user-agent"].startswith("Longhaul/")
    for secret in SECRETS:
        assert Webhook(secret).verify(got.body, got.headers)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_every_2xx_is_a_success(receiver, status):
    receiver.usual = answer(status)
    assert send(receiver.url()).answer.error is None


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 304, 400, 401, 404, 410, 429, 500, 503, 600])
def test_nothing_else_is(receiver, status):
    receiver.usual = answer(status)
    got = send(receiver.url()).answer
    assert got.status_code == status
    assert str(status) in got.error


def test_a_redirect_is_not_followed_wherever_it_leads(receiver):
    with Receiver() as other:
        for target in (other.url(), "http://[::1", "//", "\x80", "gopher://x/"):
            receiver.answers.append(
                raw(f"HTTP/1.1 307 Go\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n".encode("latin-1"))
            )
            got = send(receiver.url()).answer
            assert (got.status_code, "not followed" in got.error) == (307, True)
    assert other.connections == 0


def test_a_proxy_and_credentials_of_the_environment_are_not_used(receiver, monkeypatch, tmp_path):
    with Receiver() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url())
        monkeypatch.delenv("NO_PROXY", raising=False)
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login alice password secret\n")
        monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
        send(receiver.url())
    assert proxy.connections == 0
    assert "authorization" not in receiver.received[0].headers


def test_the_beginning_of_an_answer_is_kept(receiver):
    receiver.answers.append(answer(500, b"It broke: \x00whsec_abcdef" + b"x" * 5000))
    got = send(receiver.url()).answer
    assert got.snippet.startswith("It broke: \ufffd[redacted]")
    receiver.answers.append(answer(500, "ü".encode() * 5000))
    assert len(send(receiver.url()).answer.snippet.encode()) <= 1024


def test_a_receiver_says_when_to_come_back(receiver):
    receiver.answers.append(answer(429, retry_after="17"))
    assert send(receiver.url()).answer.retry_after_seconds == 17


@pytest.mark.parametrize(
    ("play", "error"),
    [
        (hang, "No answer within 2 seconds."),
        (drip(b"HTTP/1.1 200 OK\r\n", b"x-more: yes\r\n"), "No answer within 2 seconds."),
        (drip(b"", b"H"), "No answer within 2 seconds."),
        (close, "The connection failed"),
        (raw(b"HTTP/1.1 200"), "The connection failed"),
        (raw(b"\x16\x03\x01\x00\x00"), "The connection failed"),
        (raw(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000), "The connection failed"),
    ],
)
def test_a_receiver_that_gives_no_answer_costs_the_deadline_at_most(receiver, play, error):
    receiver.usual = play
    began = time.monotonic()
    got = send(receiver.url()).answer
    assert time.monotonic() - began < 8
    assert got.status_code is None
    assert got.error.startswith(error)


def test_a_body_that_never_ends_takes_nothing_from_a_success(receiver):
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n"
    receiver.usual = drip(head, b"z")
    began = time.monotonic()
    got = send(receiver.url()).answer
    assert time.monotonic() - began < sending.BODY_SECONDS + 6
    assert (got.status_code, got.error, got.snippet[:1]) == (200, None, "z")
    receiver.usual = drip(head, b"z" * 1_000_000)
    assert len(send(receiver.url()).answer.snippet) == 1024


def test_a_compressed_answer_is_not_unpacked(receiver):
    receiver.usual = answer(200, b"\x1f\x8b" + b"\x00" * 100, content_encoding="gzip")
    got = send(receiver.url()).answer
    assert got.error is None
    assert receiver.received[0].headers["accept-encoding"] == "identity"


def test_nobody_at_home_is_a_failure(receiver):
    receiver.close()
    assert send(receiver.url()).answer.error.startswith("The connection failed")


def test_nothing_is_sent_unsigned(receiver):
    assert send(receiver.url(), secrets=()).answer.error == "There is no secret to sign it with."
    assert receiver.received == []


def test_a_name_service_that_hangs_costs_the_deadline(receiver):
    def stalled(*_):
        time.sleep(30)

    began = time.monotonic()
    assert send("https://stalled.example/", resolver=stalled).answer.error == "No answer within 2 seconds."
    assert time.monotonic() - began < 10


def test_the_name_of_the_url_is_what_a_certificate_must_hold(configure, tmp_path):
    configure(webhook_allowed_hosts=["127.0.0.0/8", "localhost"])
    served, trusted = certificate(tmp_path)
    with Receiver(context=served) as receiver:
        assert send(receiver.url(host="localhost"), context=trusted).answer.error is None
        refused = send(receiver.url(host="127.0.0.1"), context=trusted).answer
        unknown = send(receiver.url(host="localhost")).answer
    assert "CERTIFICATE_VERIFY_FAILED" in refused.error
    assert "CERTIFICATE_VERIFY_FAILED" in unknown.error
    assert len(receiver.received) == 1


def certificate(folder):
    """A server's context with a certificate for `localhost`, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(path)
    return served, ssl.create_default_context(cafile=str(path))
