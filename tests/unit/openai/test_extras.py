"""What every call may say beside its own parameters: tiers, extras, and what is refused."""

from typing import ClassVar

import pytest

from app.api.bodies import parse
from app.api.errors import BodyInvalid
from app.jobs.errors import RequestInvalid
from app.openai import extras
from app.openai.errors import Unsupported
from app.openai.extras import Extras, Routing
from config.queues import Tier, Window


class Body(Extras):
    UNSUPPORTED: ClassVar = {"voice": (), "effort": ("none", 1, True)}

    name: str
    size: int = 3


def ask(window=None, **body):
    return extras.resolve(parse(Body, {"name": "x", **body}), window)


def test_who_asks_for_nothing_gets_an_interactive_job_that_a_closed_connection_cancels():
    assert ask() == Routing(Tier.INTERACTIVE, None, None, "cancel", "default")


@pytest.mark.parametrize(
    ("body", "tier", "service_tier"),
    [
        ({"service_tier": "auto"}, Tier.INTERACTIVE, "default"),
        ({"service_tier": "default"}, Tier.INTERACTIVE, "default"),
        ({"service_tier": None}, Tier.INTERACTIVE, "default"),
        ({"service_tier": "flex"}, Tier.BATCH, "flex"),
        ({"tier": "batch"}, Tier.BATCH, "flex"),
        ({"tier": "batch", "service_tier": "auto"}, Tier.BATCH, "flex"),
        ({"tier": "batch", "service_tier": "flex"}, Tier.BATCH, "flex"),
        ({"metadata": {"tier": "batch"}}, Tier.BATCH, "flex"),
        ({"tier": "interactive", "metadata": {"tier": "batch"}}, Tier.INTERACTIVE, "default"),
        ({"completion_window": "8h"}, Tier.BATCH, "flex"),
        ({"completion_window": "soonest"}, Tier.INTERACTIVE, "default"),
        ({"completion_window": "soonest", "service_tier": "flex"}, Tier.BATCH, "flex"),
        ({"metadata": {"completion_window": "24h"}}, Tier.BATCH, "flex"),
        ({"window": Window.ONE_HOUR}, Tier.BATCH, "flex"),
    ],
)
def test_a_tier_is_named_implied_or_bought(body, tier, service_tier):
    found = ask(**body)
    assert (found.tier, found.service_tier) == (tier, service_tier)
    assert found.fields["tier"] is tier


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tier": "interactive", "service_tier": "flex"}, "tier"),
        ({"tier": "batch", "service_tier": "default"}, "tier"),
        ({"metadata": {"tier": "interactive"}, "service_tier": "flex"}, "metadata.tier"),
        ({"tier": "interactive", "completion_window": "1h"}, "completion_window"),
        ({"service_tier": "default", "metadata": {"completion_window": "1h"}}, "metadata.completion_window"),
        ({"tier": "interactive", "window": Window.ONE_HOUR}, "completion_window"),
        ({"metadata": {"tier": "express"}}, "metadata.tier"),
        ({"metadata": {"completion_window": "3h"}}, "metadata.completion_window"),
        ({"metadata": {"session_id": ""}}, "metadata.session_id"),
        ({"metadata": {"session_id": "x" * 129}}, "metadata.session_id"),
        ({"metadata": {"on_disconnect": "maybe"}}, "metadata.on_disconnect"),
    ],
)
def test_what_contradicts_itself_or_is_unknown_in_metadata_is_named(body, param):
    with pytest.raises(RequestInvalid) as error:
        ask(**body)
    assert error.value.param == param
    assert f"'{param}'" in str(error.value)


def test_the_body_goes_before_metadata_and_parameters_before_both_but_the_body():
    given = {"metadata": {"session_id": "a", "on_disconnect": "continue", "completion_window": "24h"}}
    hook = {"metadata": {"webhook_url": "https://a.example/"}}
    assert ask(**hook).fields["webhook_url"] == "https://a.example/"
    assert ask(**hook, webhook_url="https://b.example/").fields["webhook_url"] == "https://b.example/"
    found = ask(**given)
    assert (found.session_id, found.on_disconnect, found.completion_window) == ("a", "continue", Window.ONE_DAY)
    found = ask(**given, session_id="b", on_disconnect="cancel", completion_window="8h")
    assert (found.session_id, found.on_disconnect, found.completion_window) == (
        "b",
        "cancel",
        Window.EIGHT_HOURS,
    )
    assert ask(**given, window=Window.TWO_HOURS).completion_window is Window.TWO_HOURS
    both = ask(**given, completion_window="8h", window=Window.TWO_HOURS)
    assert both.completion_window is Window.EIGHT_HOURS


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"voice": "alloy"}, "voice"),
        ({"voice": False}, "voice"),
        ({"voice": {}}, "voice"),
        ({"effort": "high"}, "effort"),
        ({"effort": False}, "effort"),
        ({"effort": 0}, "effort"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"service_tier": "scale"}, "service_tier"),
        ({"service_tier": "fast"}, "service_tier"),
        ({"service_tier": "ultrafast"}, "service_tier"),
    ],
)
def test_what_openai_knows_and_we_do_not_serve_is_refused_by_name(body, param):
    with pytest.raises(Unsupported) as error:
        ask(**body)
    assert (error.value.code, error.value.param) == ("unsupported_parameter", param)
    assert f"'{param}'" in str(error.value)


@pytest.mark.parametrize("body", [{"voice": None}, {"effort": "none"}, {"effort": 1}, {"webhook_url": None}])
def test_what_asks_for_nothing_is_no_offence(body):
    assert ask(**body) == ask()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"colour": 1}, "Unknown parameter: 'colour'."),
        ({"colour": None}, "Unknown parameter: 'colour'."),
        ({"UNSUPPORTED": {}}, "Unknown parameter: 'UNSUPPORTED'."),
        ({"name": None}, "Invalid 'name': Input should be a valid string."),
        ({"tier": "express"}, "Invalid 'tier': Input should be 'interactive' or 'batch'."),
        ({"service_tier": "gold"}, "Invalid 'service_tier': Input should be 'auto', 'default' or 'flex'."),
    ],
)
def test_the_rest_is_unknown_or_invalid(body, message):
    with pytest.raises(BodyInvalid) as error:
        ask(**body)
    assert str(error.value) == message


def test_null_stands_for_a_default():
    assert parse(Body, {"name": "x", "size": None, "metadata": None}).size == 3


EDGES = [
    ("metadata", {f"k{n}": "v" for n in range(16)}, {f"k{n}": "v" for n in range(17)}),
    ("metadata", {"k" * 64: "v"}, {"k" * 65: "v"}),
    ("metadata", {"k": "v" * 512}, {"k": "v" * 513}),
    ("metadata", {"k": "v"}, {"k": 1}),
    ("session_id", "s" * 128, "s" * 129),
    ("session_id", "s", ""),
    ("on_disconnect", "continue", "stay"),
    ("completion_window", "1h", "3h"),
    ("webhook_url", "https://example.com/" + "x" * 2_028, "https://example.com/" + "x" * 2_029),
    ("webhook_url", "https://example.com/", ""),
]


@pytest.mark.parametrize(("field", "good", "bad"), EDGES)
def test_a_limit_holds_at_its_edge(field, good, bad):
    ask(**{field: good})
    with pytest.raises(BodyInvalid) as error:
        ask(**{field: bad})
    assert error.value.param.startswith(field)
