"""What is kept of a receiver's answer."""

import pytest

from app.webhooks.sending import redact


@pytest.mark.parametrize(
    ("shown", "kept"),
    [
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw done", "[redacted] done"),
        ("key whsk_abc/def+g=", "key [redacted]"),
        ("got v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4= from you", "got [redacted] from you"),
        (
            "got v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw= from",
            "got [redacted] from",
        ),
        ("Authorization: Bearer abc.def", "Authorization: [redacted]"),
        ('{"password": "hunter2", "user": "x"}', '{"password":[redacted], "user": "x"}'),
        ("Thank you, v1, for this", "Thank you, v1, for this"),
        ("a\x00b\x1b[31mc\r\n\td", "a\ufffdb\ufffd[31mc\ufffd\n\td"),
    ],
)
def test_it_is_printable_and_without_secrets(shown, kept):
    assert redact(shown) == kept
