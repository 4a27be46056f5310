"""`client.responses` of OpenAI's package, without streams."""

import time

import pytest
from openai import BadRequestError, ConflictError, NotFoundError
from pydantic import BaseModel

from tests.acceptance.openai.conftest import MODEL, UNSTORED_SECONDS
from tests.eventually import eventually

SLOW = {"model": MODEL, "input": "[[step_ms=20]] A long story.", "max_output_tokens": 400}
SHORT = {"model": MODEL, "input": "[[say=Hello there.]] Greet me."}


def ended(client, response_id, seconds=30):
    def found():
        response = client.responses.retrieve(response_id)
        return response if response.status not in {"queued", "in_progress"} else None

    return eventually(found, seconds)


def begun(client, response_id):
    """Once some of its text is stored."""

    def found():
        response = client.responses.retrieve(response_id)
        return response if response.output_text else None

    return eventually(found, 20)


def test_a_plain_call_answers_with_the_whole_response(client):
    response = client.responses.create(**SHORT, metadata={"ticket": "7"}, temperature=0.5, top_p=0.9)
    assert response.id.startswith("resp_")
    assert (response.object, response.status, response.model) == ("response", "completed", MODEL)
    assert response.output_text == "Hello there."
    (item,) = response.output
    assert (item.type, item.role, item.status) == ("message", "assistant", "completed")
    assert item.id.startswith("msg_")
    assert response.metadata == {"ticket": "7"}
    assert (response.temperature, response.top_p) == (0.5, 0.9)
    assert (response.error, response.incomplete_details, response.background) == (None, None, False)
    assert response.completed_at >= response.created_at
    assert response.service_tier == "default"


def test_usage_has_its_details(client):
    body = {"model": MODEL, "input": f"[[tokens=9]] {'Words and words. ' * 20}"}
    first = client.responses.create(**body).usage
    again = client.responses.create(**body).usage
    assert first.total_tokens == first.input_tokens + first.output_tokens
    assert (first.input_tokens_details.cache_write_tokens, first.output_tokens_details.reasoning_tokens) == (
        0,
        0,
    )
    assert 0 < again.input_tokens_details.cached_tokens < again.input_tokens == first.input_tokens


def test_the_job_behind_a_response_is_named_in_a_header(client, stack):
    raw = client.responses.with_raw_response.create(**SHORT)
    job = stack.job(raw.headers["x-longhaul-job-id"])
    assert raw.parse().id == job["id"].replace("job_", "resp_")
    assert (job["status"], job["tier"]) == ("completed", "interactive")


def test_a_background_response_is_polled_to_its_end(client):
    response = client.responses.create(**SHORT, background=True)
    assert (response.status, response.background, response.output) == ("queued", True, [])
    done = ended(client, response.id)
    assert (done.id, done.status, done.output_text) == (response.id, "completed", "Hello there.")


def test_one_that_is_cut_at_its_limit_is_incomplete_with_its_text(client):
    response = client.responses.create(model=MODEL, input="A story.", max_output_tokens=16)
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.output_tokens == 16
    assert response.output_text
    assert response.output[0].status == "incomplete"


def test_a_failed_one_says_why(client):
    response = client.responses.create(model=MODEL, input="[[reject]]", background=True)
    failed = ended(client, response.id)
    assert (failed.status, failed.output) == ("failed", [])
    assert failed.error.code in {"invalid_prompt", "server_error"}
    assert "rejected" in failed.error.message


def test_a_cancel_keeps_the_partial_and_may_be_repeated(client, other):
    response = client.responses.create(**SLOW, background=True)
    begun(client, response.id)
    cancelled = other.responses.cancel(response.id)
    assert cancelled.status == "cancelled"
    assert cancelled.output_text
    assert cancelled.output[0].status == "incomplete"
    again = client.responses.cancel(response.id)
    assert again == cancelled == client.responses.retrieve(response.id)


def test_cancelling_what_is_complete_answers_with_it(client):
    done = client.responses.create(**SHORT)
    assert client.responses.cancel(done.id).status == "completed"


def test_a_deleted_response_is_gone(client):
    done = client.responses.create(**SHORT)
    client.responses.delete(done.id)
    for call in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
        with pytest.raises(NotFoundError) as refusal:
            call(done.id)
        assert refusal.value.code == "response_not_found"
        assert refusal.value.response.headers.get("x-should-retry") != "true"


def test_one_that_runs_can_be_deleted(client):
    response = client.responses.create(**SLOW, background=True)
    begun(client, response.id)
    client.responses.delete(response.id)
    with pytest.raises(NotFoundError):
        client.responses.retrieve(response.id)


@pytest.mark.parametrize("response_id", ["resp_unknown", f"resp_{'0' * 32}", "job_1"])
def test_an_id_that_never_was_is_not_found(client, response_id):
    with pytest.raises(NotFoundError):
        client.responses.retrieve(response_id)


def test_input_items_are_listed_newest_first_and_paged(client):
    said = [{"role": "user", "content": f"Message {n}"} for n in range(5)]
    done = client.responses.create(model=MODEL, input=said, max_output_tokens=16)
    page = client.responses.input_items.list(done.id, limit=2)
    assert page.has_more
    everything = list(client.responses.input_items.list(done.id, limit=2))
    assert [item.content[0].text for item in everything] == [f"Message {n}" for n in reversed(range(5))]
    assert len({item.id for item in everything}) == 5
    oldest = client.responses.input_items.list(done.id, order="asc", limit=1)
    assert [item.content[0].text for item in oldest.data] == ["Message 0"]


def test_input_tokens_are_counted_as_a_call_counts_them(client):
    body = {"model": MODEL, "input": "How many tokens is this?", "instructions": "Be brief."}
    counted = client.responses.input_tokens.count(**body)
    assert counted.object == "response.input_tokens"
    assert counted.input_tokens == client.responses.create(**body, max_output_tokens=16).usage.input_tokens


def test_a_response_follows_another_and_reads_the_whole_conversation(client):
    first = client.responses.create(**SHORT, instructions="Speak like a sailor.")
    second = client.responses.create(
        model=MODEL, input="[[say=Again.]] And again?", previous_response_id=first.id
    )
    assert (second.previous_response_id, second.output_text) == (first.id, "Again.")
    assert second.instructions is None
    items = client.responses.input_items.list(second.id, order="asc").data
    assert [item.role for item in items] == ["user", "assistant", "user"]
    assert items[1].content[0].text == "Hello there."
    third = client.responses.create(model=MODEL, input="[[say=Third.]]", previous_response_id=second.id)
    assert len(client.responses.input_items.list(third.id).data) == 5
    client.responses.delete(first.id)
    fourth = client.responses.create(model=MODEL, input="[[say=Fourth.]]", previous_response_id=second.id)
    assert fourth.output_text == "Fourth."


def test_one_that_follows_nothing_is_refused(client):
    with pytest.raises(BadRequestError) as refusal:
        client.responses.create(**SHORT, previous_response_id=f"resp_{'0' * 32}")
    assert (refusal.value.param, refusal.value.code) == ("previous_response_id", "previous_response_not_found")


def test_one_that_still_runs_cannot_be_followed(client):
    running = client.responses.create(**SLOW, background=True)
    with pytest.raises((BadRequestError, ConflictError)) as refusal:
        client.responses.create(**SHORT, previous_response_id=running.id)
    assert refusal.value.param == "previous_response_id"
    client.responses.cancel(running.id)


class City(BaseModel):
    name: str
    people: int


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "people": {"type": "integer"}},
          "required": ["name", "people"], "additionalProperties": False}  # fmt: skip


def test_parse_gives_a_pydantic_model(client):
    response = client.responses.parse(model=MODEL, input="Name a city.", text_format=City)
    assert isinstance(response.output_parsed, City)
    assert response.text.format.type == "json_schema"


def test_a_schema_and_a_plain_object_hold_the_model_to_json(client):
    schema = {"type": "json_schema", "name": "city", "schema": SCHEMA, "strict": True}
    response = client.responses.create(model=MODEL, input="Name a city.", text={"format": schema})
    assert City.model_validate_json(response.output_text)
    assert response.text.format.name == "city"
    anything = client.responses.create(
        model=MODEL, input="Say something as JSON.", text={"format": {"type": "json_object"}}
    )
    assert anything.output_text.startswith("{")


def test_truncation_auto_drops_the_oldest_and_disabled_refuses(client):
    said = [{"role": "user", "content": f"{n} {'word ' * 1500}"} for n in range(6)]
    body = {
        "model": MODEL,
        "input": [*said, {"role": "user", "content": "[[say=Done.]]"}],
        "max_output_tokens": 16,
    }
    with pytest.raises(BadRequestError) as refusal:
        client.responses.create(**body, truncation="disabled")
    assert refusal.value.code == "context_length_exceeded"
    response = client.responses.create(**body, truncation="auto")
    assert (response.truncation, response.output_text) == ("auto", "Done.")
    assert response.usage.input_tokens <= 4096


def test_an_unstored_response_cannot_be_retrieved(client):
    response = client.responses.create(**SHORT, store=False)
    assert response.output_text == "Hello there."
    with pytest.raises(NotFoundError):
        client.responses.retrieve(response.id)
    with pytest.raises(BadRequestError):
        client.responses.create(**SHORT, previous_response_id=response.id)


def test_an_unstored_background_response_is_there_for_a_while(client):
    response = client.responses.create(**SHORT, store=False, background=True)
    assert ended(client, response.id).output_text == "Hello there."
    began = time.monotonic()

    def is_gone():
        try:
            client.responses.retrieve(response.id)
        except NotFoundError:
            return True
        return False

    eventually(is_gone, UNSTORED_SECONDS + 15)
    assert time.monotonic() - began > UNSTORED_SECONDS / 2


def test_flex_is_the_batch_tier(client, stack):
    raw = client.responses.with_raw_response.create(**SHORT, service_tier="flex")
    assert raw.parse().service_tier == "flex"
    assert stack.job(raw.headers["x-longhaul-job-id"])["tier"] == "batch"
    assert client.responses.create(**SHORT, service_tier="auto").service_tier == "default"


@pytest.mark.parametrize("tier", ["priority", "scale", "fast", "ultrafast", "nonsense"])
def test_a_service_tier_that_is_not_sold_is_refused(client, tier):
    with pytest.raises(BadRequestError) as refusal:
        client.responses.create(**SHORT, service_tier=tier)
    assert refusal.value.param == "service_tier"


def test_a_completion_window_goes_with_background(client, stack):
    options = {"background_options": {"completion_window": "2h"}}
    raw = client.responses.with_raw_response.create(**SHORT, background=True, extra_body=options)
    job = stack.job(raw.headers["x-longhaul-job-id"])
    assert (job["tier"], job["completion_window"]) == ("batch", "2h")
    assert ended(client, raw.parse().id).status == "completed"


@pytest.mark.parametrize("where", ["extra_body", "metadata"])
def test_extras_travel_in_the_body_or_in_metadata(client, stack, where):
    extras = {"tier": "batch", "session_id": "a-session", "completion_window": "8h"}
    raw = client.responses.with_raw_response.create(**SHORT, **{where: extras})
    job = stack.job(raw.headers["x-longhaul-job-id"])
    assert (job["tier"], job["session_id"], job["completion_window"]) == ("batch", "a-session", "8h")


def test_an_extra_that_cannot_be_is_refused_by_its_name(client):
    for place, options in (
        ("metadata.tier", {"metadata": {"tier": "gold"}}),
        ("tier", {"extra_body": {"tier": "gold"}}),
        ("webhook_url", {"extra_body": {"webhook_url": "https://10.0.0.1/hook"}}),
    ):
        with pytest.raises(BadRequestError) as refusal:
            client.responses.create(**SHORT, **options)
        assert refusal.value.param.endswith(place)


def test_logprobs_come_with_the_text(client):
    response = client.responses.create(
        **SHORT, include=["message.output_text.logprobs"], top_logprobs=2, temperature=0
    )
    logprobs = response.output[0].content[0].logprobs
    assert "".join(one.token for one in logprobs) == "Hello there."
    assert all(len(one.top_logprobs) == 2 and bytes(one.bytes).decode() == one.token for one in logprobs)


def test_reasoning_is_an_item_of_its_own(client):
    response = client.responses.create(model=MODEL, input="[[think=First this, then that.]] [[say=That.]]")
    reasoning, message = response.output
    assert (reasoning.type, reasoning.summary) == ("reasoning", [])
    assert reasoning.content[0].text.strip() == "First this, then that."
    assert message.content[0].text.strip() == "That."
    assert response.usage.output_tokens_details.reasoning_tokens > 0


def test_a_retried_call_with_the_same_key_attaches(client):
    headers = {"Idempotency-Key": "once"}
    first = client.responses.create(**SHORT, extra_headers=headers)
    assert client.responses.create(**SHORT, extra_headers=headers) == first
    with pytest.raises(ConflictError) as refusal:
        client.responses.create(model=MODEL, input="Another body.", extra_headers=headers)
    assert refusal.value.response.headers["x-should-retry"] == "false"


def test_a_call_that_would_wait_too_long_names_background_mode(other):
    from openai import APIStatusError

    with pytest.raises(APIStatusError, match="background") as refusal:
        other.responses.create(**{**SLOW, "input": "[[step_ms=50]] Slow."})
    assert refusal.value.code == "sync_timeout"
    assert refusal.value.response.headers["x-should-retry"] == "false"
