"""What a line of a batch asks for: as the same body by itself, at the batch's tier and window."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.accounts.limits import Caller
from app.drafting import draft
from app.jobs.errors import JobError, RequestInvalid
from app.jobs.submission import Spoken
from app.jobs.tables import Surface
from app.openai.chat import body as chat
from app.openai.completions.body import CreateCompletion
from app.openai.errors import Unsupported
from app.openai.responses.body import CreateResponse
from app.surfaces.asking import ENDPOINTS, ask, reworded
from config.queues import Tier, Window

CHAT, RESPONSES, COMPLETIONS, JOBS = (
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/completions",
    "/v1/jobs",
)
BODIES = {
    CHAT: {"model": "faulty", "messages": [{"role": "user", "content": "Hi"}]},
    RESPONSES: {"model": "faulty", "input": "Hi"},
    COMPLETIONS: {"model": "faulty", "prompt": "Hi"},
    JOBS: {"model": "faulty", "input": "Hi"},
    "/v1/messages": {"model": "faulty", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5},
}
CALLER = Caller("acct_" + "1" * 32, "key_" + "2" * 32)


def asked(endpoint, **body):
    return ask(endpoint, {**BODIES[endpoint], **body}, Window.ONE_DAY)


def refusal(kind, endpoint, **body):
    with pytest.raises(kind) as error:
        asked(endpoint, **body)
    return error.value


@pytest.mark.parametrize("window", [Window.ONE_DAY, Window.ONE_HOUR, Window.SOONEST])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_line_is_a_batch_job_of_its_batchs_window(endpoint, window):
    found = ask(endpoint, BODIES[endpoint], window)
    assert (found.wanted.effective_tier, found.wanted.effective_window) == (Tier.BATCH, window)
    assert found.spoken.surface is ENDPOINTS[endpoint]
    assert found.spoken.is_stored
    drafted = draft(found.wanted, CALLER, found.spoken, request_hash=b"h")
    assert (drafted.tier, drafted.completion_window) == (Tier.BATCH, window)
    assert (drafted.request["tier"], drafted.request["completion_window"]) == ("batch", window)


def test_a_chat_is_asked_for_as_by_itself():
    body = {
        **BODIES[CHAT],
        "temperature": 0.5,
        "max_tokens": 9,
        "seed": 3,
        "stop": "x",
        "user": "u",
        "service_tier": "flex",
        "completion_window": "8h",
    }
    (alone,) = chat.to_requests(chat.CreateChat(**body))
    found = ask(CHAT, body, Window.EIGHT_HOURS)
    assert found.wanted == alone.model_copy(update={"tier": Tier.BATCH})
    assert found.spoken == Spoken(Surface.CHAT, {"n": 1, "index": 0, "user": "u"})


@pytest.mark.parametrize("endpoint", [CHAT, RESPONSES, COMPLETIONS])
def test_what_says_the_same_as_the_batch_or_nothing_is_taken(endpoint):
    plain = asked(endpoint)
    for same in (
        {"tier": "batch", "completion_window": "24h"},
        {"service_tier": "auto"},
        {"service_tier": "flex"},
        {"stream": False, "on_disconnect": None, "tier": None, "completion_window": None},
    ):
        assert asked(endpoint, **same) == plain
    extras = {"tier": "batch", "completion_window": "24h"}
    assert asked(endpoint, metadata=extras).wanted == plain.wanted.model_copy(update={"metadata": extras})


@pytest.mark.parametrize("endpoint", [CHAT, RESPONSES, COMPLETIONS])
def test_a_line_that_is_not_to_be_kept_is_not(endpoint):
    assert not asked(endpoint, store=False).spoken.is_stored


@pytest.mark.parametrize(
    ("endpoint", "body", "param"),
    [
        (CHAT, {"stream": True}, "stream"),
        (CHAT, {"stream": "true"}, "stream"),
        (CHAT, {"n": 2}, "n"),
        (CHAT, {"n": True}, "n"),
        (CHAT, {"on_disconnect": "continue"}, "on_disconnect"),
        (CHAT, {"metadata": {"on_disconnect": "continue"}}, "metadata.on_disconnect"),
        (CHAT, {"service_tier": "priority"}, "service_tier"),
        (COMPLETIONS, {"n": 2}, "n"),
        (COMPLETIONS, {"prompt": ["a", "b"]}, "prompt"),
        (COMPLETIONS, {"stream": True}, "stream"),
        (RESPONSES, {"stream": True}, "stream"),
        (RESPONSES, {"background": True}, "background"),
        (RESPONSES, {"previous_response_id": "resp_1"}, "previous_response_id"),
        (JOBS, {"expires_after_seconds": 5}, "expires_after_seconds"),
    ],
)
def test_what_a_line_cannot_have_is_refused_by_name(endpoint, body, param):
    error = refusal(Unsupported, endpoint, **body)
    assert error.param == param
    assert f"'{param}' is not supported here" in str(error)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tier": "interactive"}, "tier"),
        ({"tier": []}, "tier"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"completion_window": {}}, "completion_window"),
        ({"service_tier": "default"}, "service_tier"),
        ({"metadata": {"tier": "interactive"}}, "metadata.tier"),
        ({"metadata": {"completion_window": "soonest"}}, "metadata.completion_window"),
    ],
)
def test_what_contradicts_the_batch_is_refused_by_name(body, param):
    error = refusal(RequestInvalid, CHAT, **body)
    assert (error.param, error.code) == (param, "invalid_value")
    assert f"'{param}' can only be" in str(error)


def test_a_prompt_in_a_list_is_one_prompt():
    assert asked(COMPLETIONS, prompt=["Hi"]) == asked(COMPLETIONS)


def test_a_fault_is_named_in_the_words_of_its_surface():
    error = refusal(RequestInvalid, CHAT, messages=[{"role": "ghost", "content": "Hi"}])
    assert error.param == "messages.0"
    found = asked(CHAT, max_completion_tokens=5_000)
    with pytest.raises(RequestInvalid) as too_many:
        draft(found.wanted, CALLER, found.spoken, request_hash=b"")
    said = reworded(CHAT, too_many.value)
    assert said.param == "max_completion_tokens"
    assert str(said).startswith("'max_completion_tokens' is 5000; ")


@pytest.mark.parametrize("endpoint", [CHAT, RESPONSES, COMPLETIONS])
@pytest.mark.parametrize("where", ["body", "metadata"])
def test_a_lines_own_webhook_goes_with_its_job(endpoint, where):
    url = {"webhook_url": "https://example.com/hook"}
    found = asked(endpoint, **(url if where == "body" else {"metadata": url}))
    drafted = draft(found.wanted, CALLER, found.spoken, request_hash=b"")
    assert drafted.webhook_url == url["webhook_url"]
    assert "webhook_url" not in drafted.request


def test_a_conversation_that_may_be_cut_is_made_to_fit():
    items = [{"role": "user", "content": f"{number} " + "word " * 400} for number in range(20)]
    found = asked(RESPONSES, input=items, truncation="auto")
    assert 1 < len(found.wanted.input) < 20


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from(
    sorted({*chat.CreateChat.model_fields, *CreateResponse.model_fields, *CreateCompletion.model_fields})
)


@settings(max_examples=50)
@given(st.sampled_from(sorted(ENDPOINTS)), st.dictionaries(NAMES, ANYTHING, max_size=4))
def test_any_json_is_asked_for_or_refused(endpoint, body):
    with suppress(JobError):
        assert asked(endpoint, **body).wanted.effective_tier is Tier.BATCH
