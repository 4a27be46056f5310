"""`longhaul accounts` and `longhaul keys limit` on a real Postgres."""

import pytest

from app.accounts.keys import find_account, list_keys
from app.accounts.limits import caller_with
from app.db import transaction
from config.queues import Tier
from config.settings import settings
from tests.integration.cli.test_database import longhaul

__all__ = ["longhaul"]


@pytest.fixture
def key_id(longhaul):
    """Of the account `acme`."""
    longhaul("keys", "create", "laptop", "--account", "acme")
    return longhaul("keys", "list").stdout.splitlines()[1].split("\t")[0]


def limits(tier=Tier.INTERACTIVE):
    with transaction() as session:
        (key, _) = list_keys(session)[0]
        account = find_account(session, "acme")
        return caller_with(account, key).limits[tier]


def test_what_is_set_holds_and_what_is_not_stays(longhaul, key_id):
    ran = longhaul("accounts", "set", "acme", "--weight", "2.5", "--tokens-per-minute", "1000")
    assert ran.returncode == 0, ran.stderr
    assert "5 s" in ran.stdout
    ran = longhaul("accounts", "set", "acme", "--max-waiting-jobs", "7", "--accept-late-windows")
    assert ran.returncode == 0, ran.stderr
    found = limits()
    assert (found.weight, found.tokens_per_minute, found.max_waiting_jobs) == (2.5, 1000, 7)
    assert found.accepts_late_windows
    assert found.requests_per_minute == settings().requests_per_minute
    assert limits(Tier.BATCH).tokens_per_minute == settings().batch_tokens_per_minute


def test_zero_is_no_limit_and_default_is_what_the_installation_says(longhaul, key_id):
    longhaul("accounts", "set", "acme", "--requests-per-minute", "0")
    assert limits().requests_per_minute == 0
    longhaul("accounts", "set", "acme", "--requests-per-minute", "default")
    assert limits().requests_per_minute == settings().requests_per_minute


def test_accounts_are_listed_with_what_holds_for_them(longhaul, key_id):
    longhaul("accounts", "set", "acme", "--tokens-per-minute", "1500", "--max-waiting-tokens", "0")
    header, row = (line.split("\t") for line in longhaul("accounts", "list").stdout.splitlines())
    shown = dict(zip(header, row, strict=True))
    assert shown["account"] == "acme"
    assert shown["tokens/min"] == "1,500"
    assert shown["waiting tokens"] == "none"
    assert shown["waiting jobs"] == f"({settings().max_waiting_jobs:,})"
    assert shown["batch tokens/min"] == "(none)"
    assert shown["late windows"] == "refused"


def test_a_key_is_limited_besides_its_account(longhaul, key_id):
    ran = longhaul("keys", "limit", key_id, "--requests-per-minute", "9", "--tokens-per-minute", "800")
    assert ran.returncode == 0, ran.stderr
    assert (limits().key_requests_per_minute, limits().key_tokens_per_minute) == (9, 800)
    longhaul("keys", "limit", key_id, "--tokens-per-minute", "default")
    assert (limits().key_requests_per_minute, limits().key_tokens_per_minute) == (9, 0)


@pytest.mark.parametrize("value", ["-1", "many", "1.5", str(2**31), ""])
def test_what_is_no_limit_is_refused(longhaul, key_id, value):
    for command in (("accounts", "set", "acme"), ("keys", "limit", key_id)):
        ran = longhaul(*command, "--requests-per-minute", value)
        assert ran.returncode == 2
        assert "'default'" in ran.stderr
    assert limits().requests_per_minute == settings().requests_per_minute


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf"])
def test_a_weight_is_above_zero(longhaul, key_id, weight):
    assert longhaul("accounts", "set", "acme", "--weight", weight).returncode == 1
    assert limits().weight == 1


def test_who_is_not_there_cannot_be_limited(longhaul):
    for command in (("accounts", "set", "nobody"), ("keys", "limit", "key_nonsense")):
        ran = longhaul(*command)
        assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
        assert command[-1] in ran.stderr
