"""Where webhooks are never sent: not when a URL is given, and not at an attempt, whatever names resolve to by
then. Nothing here leaves the machine.
"""

import asyncio
import socket
import ssl
import threading
import time

import pytest

from app.webhooks import guard
from app.webhooks.errors import UrlRefused
from app.webhooks.resolving import Names
from app.webhooks.sending import Letter, Sender
from tests.receiver import Receiver

PUBLIC = "93.184.216.34"
SECRET = "whsec_" + "A" * 43 + "="
CONTEXT = ssl.create_default_context()

REFUSED = [
    # Literal
    "https://127.0.0.1/",
    "https://127.1.2.3:8443/",
    "https://0.0.0.0/",
    "https://10.0.0.1/",
    "https://172.16.0.1/",
    "https://172.31.255.255/",
    "https://192.168.1.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://100.64.0.1/",
    "https://100.100.100.200/",
    "https://168.63.129.16/",
    "https://192.0.0.192/",
    "https://192.0.2.1/",
    "https://198.18.0.1/",
    "https://224.0.0.1/",
    "https://240.0.0.1/",
    "https://255.255.255.255/",
    # Encoded
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.0.0.1/",
    "https://0x7f.1/",
    "https://127.1/",
    "https://127.0.1/",
    "https://0177.0.0.1/",
    "https://017700000001/",
    "https://127.0.0.1./",
    "https://127.0.0.0x1/",
    "https://%31%32%37.0.0.1/",
    "https://127%2e0%2e0%2e1/",
    "https://①②⑦.0.0.1/",
    "https://127。0。0。1/",
    "https://ⓁⓄⒸⒶⓁⒽⓄⓈⓉ/",
    # IPv6
    "https://[::1]/",
    "https://[::]/",
    "https://[0:0:0:0:0:0:0:1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://[::ffff:0:127.0.0.1]/",
    "https://[::127.0.0.1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[64:ff9b::169.254.169.254]/",
    "https://[64:ff9b:1::1]/",
    "https://[2002:7f00:1::]/",
    "https://[2002:a9fe:a9fe::1]/",
    "https://[2001:0:a00:1::]/",
    "https://[fc00::1]/",
    "https://[fd00:ec2::254]/",
    "https://[fe80::1]/",
    "https://[fe80::1%25eth0]/",
    "https://[fec0::1]/",
    "https://[ff02::1]/",
    "https://[2001:db8::1]/",
    "https://[4000::1]/",
    "https://[::ffff:10.0.0.1]:8443/",
    # Names of this machine
    "https://localhost/",
    "https://LOCALHOST:8443/",
    # Ports
    f"https://{PUBLIC}:80/",
    f"https://{PUBLIC}:22/",
    f"https://{PUBLIC}:6379/",
    f"https://{PUBLIC}:0/",
    f"https://{PUBLIC}:65536/",
    f"https://{PUBLIC}:-1/",
    # Schemes
    f"http://{PUBLIC}/",
    f"ftp://{PUBLIC}/",
    f"gopher://{PUBLIC}/",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "unix:///run/docker.sock",
    f"//{PUBLIC}/",
    "/hook",
    "",
    # Credentials, and hosts behind what looks like another
    f"https://user:password@{PUBLIC}/",
    f"https://user@{PUBLIC}/",
    f"https://@{PUBLIC}/",
    "https://example.com@127.0.0.1/",
    "https://example.com\\@127.0.0.1/",
    "https://127.0.0.1\\.example.com/",
    "https://127.0.0.1#@example.com/",
    "https://127.0.0.1?@example.com/",
    # Not URLs
    "https://",
    "https:///path",
    "https://exa mple.com/",
    "https://example.com/\r\nX-Injected: yes",
    "https://exam\tple.com/",
    "\thttps://example.com/",
    "https://[::1",
    "https://[example.com]/",
    "https://exa_mple$.com/",
    f"https://{'a' * 64}.com/",
    f"https://{'a.' * 200}com/",
    "https://\ud800.com/",
]


def names(*answers: str | None) -> Names:
    return Names(resolver_of(*answers))


def resolver_of(*answers, asked=None):
    """A name service that gives these addresses, one after another, then the last again and again."""
    left = list(answers)

    def resolve(host, port, *_):
        if asked is not None:
            asked.append(host)
        addresses = left.pop(0) if len(left) > 1 else left[0]
        if addresses is None:
            raise socket.gaierror("no such name")
        return [
            (socket.AF_INET6 if ":" in one else socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port))
            for one in addresses.split()
        ]

    return resolve


def attempt(url, resolver=None):
    letter = Letter(url, "evt_1", "{}", (SECRET,))
    return asyncio.run(Sender(CONTEXT, resolver).send(letter)).answer


@pytest.mark.parametrize("url", REFUSED)
def test_a_url_of_the_corpus_is_refused_when_it_is_given(url):
    with pytest.raises(UrlRefused) as refusal:
        guard.require_allowed(url, "webhook_url")
    assert refusal.value.param == "webhook_url"
    assert "webhook_url" in str(refusal.value)


def test_and_at_every_attempt_without_a_connection():
    with Receiver() as receiver:
        for url in REFUSED:
            answer = attempt(url)
            assert answer.status_code is None
            assert answer.error.startswith(("'url' is refused", "'url' is not a URL")), (url, answer.error)
    assert receiver.connections == 0


@pytest.mark.parametrize(
    "url",
    [
        f"https://{PUBLIC}/",
        f"https://{PUBLIC}:443/a?b=c",
        f"https://{PUBLIC}:8443/",
        "https://[2606:2800:220:1::1]/",
        f"https://[::ffff:{PUBLIC}]/",
        f"https://[64:ff9b::{PUBLIC}]/",
    ],
)
def test_a_public_address_is_let_through(url):
    guard.require_allowed(url, "url")


@pytest.mark.parametrize("host", ["0x5db8d822", "0x5d.0xb8d822", "93.0xb8d822", "a.example.0x22", "0x."])
def test_an_address_in_disguise_is_refused_even_where_it_is_public(host):
    with pytest.raises(UrlRefused, match="disguise"):
        guard.require_allowed(f"https://{host}/", "url", names(PUBLIC))


def test_names_are_let_through_if_all_their_addresses_are_public():
    for host in ("hooks.example.com", "hooks.example.com.", "bücher.example", "1.example", "0x7f.example"):
        guard.require_allowed(f"https://{host}/", "url", names(f"{PUBLIC} 2606:2800:220:1::1"))
    for answer in (
        "127.0.0.1",
        "10.0.0.1",
        f"{PUBLIC} 10.0.0.1",
        f"169.254.169.254 {PUBLIC}",
        "::1",
        "64:ff9b::7f00:1",
    ):
        with pytest.raises(UrlRefused, match="not public"):
            guard.require_allowed("https://hooks.example.com/", "url", names(answer))


def test_a_refusal_does_not_say_what_a_name_resolves_to():
    with pytest.raises(UrlRefused) as refusal:
        guard.require_allowed("https://db.internal.example/", "url", names("10.20.30.40"))
    assert "10.20" not in str(refusal.value)


def test_a_name_that_does_not_resolve_now_is_let_through_and_fails_at_the_attempt():
    guard.require_allowed("https://later.example/", "url", names(None))
    assert attempt("https://later.example/", resolver_of(None)).error == "The host's name has no address."


def test_a_name_is_asked_for_once_a_minute_when_urls_are_given():
    asked = []
    known = Names(resolver_of(PUBLIC, asked=asked))
    for number in range(50):
        guard.require_allowed(f"https://hooks.example.com/{number}", "url", known)
    assert asked == ["hooks.example.com"]


def test_names_that_nobody_answers_for_hold_a_registration_for_seconds_and_a_batch_not_for_ever():
    release = threading.Event()

    def stalled(*_):
        release.wait(60)
        raise socket.gaierror("too late")

    slow = Names(stalled)
    began = time.monotonic()
    guard.require_allowed("https://stalled.example/", "url", slow)
    assert 1 < time.monotonic() - began < 10
    slow._waited = 19.9
    before = threading.active_count()
    for number in range(200):
        guard.require_allowed(f"https://stalled{number}.example/", "url", slow)
    assert time.monotonic() - began < 20
    assert threading.active_count() <= before + 1
    release.set()


def test_a_name_that_was_public_when_it_was_given_is_refused_when_it_is_private_at_the_attempt(configure):
    with Receiver() as receiver:
        configure(webhook_ports=[receiver.port])
        url = f"https://rebinding.example:{receiver.port}/"
        resolver = resolver_of(PUBLIC, "127.0.0.1")
        guard.require_allowed(url, "url", Names(resolver))
        assert "not public" in attempt(url, resolver).error
    assert receiver.connections == 0


def test_the_address_that_was_checked_is_the_one_connected_to(configure):
    """The name changes its mind between the check and a second question: there is none."""
    asked = []
    with Receiver("127.0.0.2") as checked, Receiver("127.0.0.3", checked.port) as other:
        configure(webhook_allowed_hosts=["127.0.0.2"], webhook_ports=[checked.port])
        resolver = resolver_of("127.0.0.2", "127.0.0.3", asked=asked)
        answer = attempt(f"https://rebinding.example:{checked.port}/", resolver)
    assert answer.error.startswith("The connection failed")  # it speaks no TLS
    assert asked == ["rebinding.example"]
    assert (checked.connections, other.connections) == (1, 0)


def test_a_name_with_a_private_address_among_public_ones_is_not_connected_to_at_all(configure):
    with Receiver("127.0.0.2") as listed, Receiver("127.0.0.3", listed.port) as private:
        configure(webhook_allowed_hosts=["127.0.0.2"], webhook_ports=[listed.port])
        answer = attempt(f"https://both.example:{listed.port}/", resolver_of("127.0.0.2 127.0.0.3"))
    assert "not public" in answer.error
    assert (listed.connections, private.connections) == (0, 0)


def test_the_operator_may_allow_names_addresses_and_networks(configure):
    hosts = ["localhost", "*.internal.example", "127.0.0.2", "10.1.0.0/16", "fd00::/8"]
    configure(webhook_allowed_hosts=hosts)
    for url in (
        "http://localhost:9999/hook",
        "http://127.0.0.2:1/",
        "http://10.1.2.3/",
        "http://[fd00::1]:8080/",
    ):
        guard.require_allowed(url, "url")
    guard.require_allowed("http://a.internal.example:81/", "url", names("192.168.0.1"))
    guard.require_allowed("https://vpn.example/", "url", names("10.1.2.3"))
    for url, answer in (
        ("http://127.0.0.1:9999/", "127.0.0.1"),
        ("http://127.0.0.3:1/", "127.0.0.3"),
        ("http://10.2.0.1/", "10.2.0.1"),
        ("http://vpn.example/", "10.1.2.3"),
        ("http://internal.example/", "10.1.2.3"),
        ("https://other.example/", "192.168.0.1"),
        ("http://localhost@127.0.0.1/", "127.0.0.1"),
        ("ftp://localhost/", "127.0.0.1"),
        ("http://localhost.example/", "127.0.0.1"),
    ):
        with pytest.raises(UrlRefused):
            guard.require_allowed(url, "url", names(answer))
