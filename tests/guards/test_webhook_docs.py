"""What docs/webhooks.md says of events, schedule and limits is what the code does, and its examples verify."""

import re
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from app.webhooks import breaker, catalogue, messages, redelivering, schedule, secrets, signing
from app.webhooks.tables import Scheme
from config.settings import Settings

PAGE = (Path(__file__).parent.parent.parent / "docs" / "webhooks.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
UNITS = {"s": 1, "min": 60, "h": 3600}
NUMBERS = {"two": 2, "four": 4, "five": 5}


def setting(name):
    return Settings.model_fields[name].default


def test_every_type_is_in_the_table():
    section = PAGE.partition("## Events\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE) == list(catalogue.LOG_TYPES)


def test_the_schedule_is_that_of_the_code():
    [line] = re.findall(r"^`(0 s, .*)`$", PAGE, re.MULTILINE)
    said = [int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+) (\w+)", line)]
    assert said == list(schedule.DELAYS_SECONDS)


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        (r"attempt has (\d+) seconds", setting("webhook_timeout_seconds")),
        (r"endpoint gets\s+(\w+) attempts", setting("webhook_endpoint_concurrency")),
        (r"whose last (\w+) failed", breaker.TRIPPED_AFTER),
        (r"failed for (\w+) days", setting("webhook_disable_after_seconds") / 86_400),
        (r"kept for\s+(\d+) days", setting("webhook_retention_days")),
        (r"at most every (\w+) seconds", setting("batch_progress_seconds")),
        (r"cut to ([\d,]+) characters", messages.MAX_TEXT_CHARS),
        (r"range takes ([\d,]+)\s+events", redelivering.MAX_RANGE),
        (r"0 to (\d+) days\)", secrets.MAX_OVERLAP_SECONDS / 86_400),
    ],
)
def test_every_limit_is_that_of_the_code(said, limit):
    [found] = re.findall(said, PAGE)
    assert float(NUMBERS.get(found) or found.replace(",", "")) == limit


def test_the_ports_are_those_of_the_code():
    assert "port " + " or ".join(map(str, setting("webhook_ports"))) in PAGE


def test_every_example_verifies_a_message_and_refuses_another():
    shared, own = signing.new_secret(Scheme.HMAC), signing.new_secret(Scheme.ED25519)
    names = {"SECRET": shared, "PUBLIC_KEY": signing.public_key(own), "KEY": "none"}
    body = orjson.dumps({"type": "response.completed", "data": {"id": "resp_1"}})
    headers = signing.headers("evt_1", body, [own, shared], datetime.now(UTC))
    old = signing.headers("evt_1", body, [own, shared], datetime.fromtimestamp(1_700_000_000, UTC))
    for example in EXAMPLES:
        scope = dict(names)
        exec(example, scope)
        assert scope["receive"](body, headers) == ("response.completed", "resp_1")
        for bytes_, with_headers in ((body + b" ", headers), (body, old)):
            with pytest.raises(Exception, match=r"(?i)sign|old"):
                scope["receive"](bytes_, with_headers)
    assert len(EXAMPLES) == 4


def test_the_body_that_is_shown_is_one_that_a_client_reads():
    [shown] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    event = orjson.loads(shown)
    assert list(event) == ["id", "object", "created_at", "type", "data"]
    assert event["data"]["url"].endswith(event["data"]["id"])
