"""`client.chat.completions`, `client.completions` and `client.models` of OpenAI's package."""

import pytest
from openai import APIError, APITimeoutError, BadRequestError, ConflictError, NotFoundError
from pydantic import BaseModel

from tests.acceptance.openai.conftest import MODEL
from tests.eventually import eventually

HELLO = {"model": MODEL, "messages": [{"role": "user", "content": "[[say=Hello there.]] Greet me."}]}
STORY = {"model": MODEL, "messages": [{"role": "user", "content": "Tell me a story."}]}
SLOW = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "[[step_ms=10]] Tell me a story."}],
    "max_completion_tokens": 300,
    "temperature": 0,
}


def test_a_plain_call_answers(client, stack):
    raw = client.chat.completions.with_raw_response.create(**HELLO)
    completion = raw.parse()
    (choice,) = completion.choices
    assert completion.id.startswith("chatcmpl-")
    assert (completion.object, completion.model) == ("chat.completion", MODEL)
    assert (choice.index, choice.finish_reason, choice.message.role) == (0, "stop", "assistant")
    assert (choice.message.content, choice.message.tool_calls, choice.logprobs) == ("Hello there.", None, None)
    usage = completion.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.completion_tokens_details.reasoning_tokens == 0
    assert usage.prompt_tokens_details.cached_tokens >= 0
    assert stack.job(raw.headers["x-longhaul-job-id"])["id"][4:] == completion.id[9:]


def test_a_chat_is_no_response(client):
    completion = client.chat.completions.create(**HELLO)
    with pytest.raises(NotFoundError):
        client.responses.retrieve(completion.id.replace("chatcmpl-", "resp_"))


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
def test_one_cut_at_its_limit_has_the_reason_length(client, limit):
    completion = client.chat.completions.create(**STORY, **{limit: 12})
    assert completion.choices[0].finish_reason == "length"
    assert completion.usage.completion_tokens == 12


def test_a_stream_adds_up_to_what_a_plain_call_says(client):
    whole = client.chat.completions.create(**STORY, max_tokens=20, temperature=0)
    chunks = list(client.chat.completions.create(**STORY, max_tokens=20, temperature=0, stream=True))
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert all(chunk.usage is None for chunk in chunks)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["length"]


def test_usage_comes_last_where_it_is_wanted(client):
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(client.chat.completions.create(**HELLO, **options))
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens > 0


def test_n_choices_are_one_completion(client, stack):
    raw = client.chat.completions.with_raw_response.create(**STORY, n=3, seed=7, max_tokens=12)
    completion = raw.parse()
    assert [choice.index for choice in completion.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in completion.choices}) == 3
    assert completion.usage.completion_tokens == 36
    jobs = raw.headers["x-longhaul-job-id"].split(",")
    assert len({stack.job(job_id.strip())["id"] for job_id in jobs}) == 3


def test_n_choices_are_streamed_side_by_side(client):
    texts, ends = {}, {}
    for chunk in client.chat.completions.create(**STORY, n=2, seed=7, max_tokens=12, stream=True):
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            ends |= {choice.index: choice.finish_reason} if choice.finish_reason else {}
    again = client.chat.completions.create(**STORY, n=2, seed=7, max_tokens=12)
    assert texts == {choice.index: choice.message.content for choice in again.choices}
    assert ends == {0: "length", 1: "length"}


def test_a_seed_says_the_same_again_and_another_says_something_else(client):
    def said(seed):
        completion = client.chat.completions.create(**STORY, seed=seed, max_tokens=12, temperature=1)
        return completion.choices[0].message.content

    assert said(1) == said(1) != said(2)


def test_a_stop_string_ends_the_text_before_it(client):
    for stop in ("there", ["zzz", "there"]):
        completion = client.chat.completions.create(**HELLO, stop=stop)
        assert (completion.choices[0].message.content, completion.choices[0].finish_reason) == (
            "Hello ",
            "stop",
        )


def test_logprobs_are_given_plain_and_streamed(client):
    options = {"logprobs": True, "top_logprobs": 2}
    plain = client.chat.completions.create(**HELLO, **options).choices[0].logprobs.content
    streamed = [
        entry
        for chunk in client.chat.completions.create(**HELLO, **options, stream=True)
        if chunk.choices[0].logprobs
        for entry in chunk.choices[0].logprobs.content
    ]
    assert streamed == plain
    assert "".join(entry.token for entry in plain) == "Hello there."
    assert all(len(entry.top_logprobs) == 2 for entry in plain)


class City(BaseModel):
    name: str


def test_a_response_format_holds_the_model_to_json(client):
    completion = client.chat.completions.parse(**STORY, response_format=City)
    assert isinstance(completion.choices[0].message.parsed, City)
    plain = client.chat.completions.create(**STORY, response_format={"type": "json_object"})
    assert plain.choices[0].message.content.startswith("{")
    with client.chat.completions.stream(**STORY, response_format=City) as stream:
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, City)


def test_a_prompt_that_the_engine_rejects_is_a_bad_request(client):
    body = {"model": MODEL, "messages": [{"role": "user", "content": "[[reject]]"}]}
    with pytest.raises(BadRequestError):
        client.chat.completions.create(**body)
    with pytest.raises(APIError, match="rejected"):
        list(client.chat.completions.create(**body, stream=True))


def test_roles_and_parts_are_read(client):
    said = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello "}, {"type": "text", "text": "there."}]},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "[[say=Fine.]]"},
    ]
    assert client.chat.completions.create(model=MODEL, messages=said).choices[0].message.content == "Fine."


def test_a_worker_killed_in_mid_stream_costs_a_chat_no_text(client, stack):
    whole = client.chat.completions.create(**SLOW).choices[0].message.content
    text, killed = "", False
    for chunk in client.chat.completions.create(**SLOW, stream=True):
        text += chunk.choices[0].delta.content or ""
        if not killed and len(text) > 200:
            killed = True
            stack.kill("gpu")
            stack.start("gpu")
    assert killed
    assert text == whole


def test_a_chat_whose_client_goes_away_is_cancelled(client, stack):
    stream = client.chat.completions.create(**SLOW, stream=True)
    job_id = stream.response.headers["x-longhaul-job-id"]
    for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    stream.close()
    assert stack.ended(job_id)["status"] == "cancelled"
    options = {"extra_headers": {"Idempotency-Key": "gone"}, "extra_body": {"on_disconnect": "cancel"}, "n": 2}
    with pytest.raises(APITimeoutError):
        client.with_options(timeout=0.7).chat.completions.create(**SLOW, **options)
    raw = client.chat.completions.with_raw_response.create(**SLOW, **options)
    jobs = [one.strip() for one in raw.headers["x-longhaul-job-id"].split(",")]
    assert {stack.ended(job_id)["status"] for job_id in jobs} == {"cancelled"}


def test_a_chat_may_be_left_to_go_on(client, stack):
    stream = client.chat.completions.create(**SLOW, stream=True, extra_body={"on_disconnect": "continue"})
    job_id = stream.response.headers["x-longhaul-job-id"]
    next(iter(stream))
    stream.close()
    assert stack.ended(job_id)["status"] == "incomplete"


def test_a_retried_chat_with_the_same_key_attaches(client):
    headers = {"Idempotency-Key": "chat-once"}
    first = client.chat.completions.create(**STORY, max_tokens=12, extra_headers=headers)
    assert client.chat.completions.create(**STORY, max_tokens=12, extra_headers=headers) == first
    with pytest.raises(ConflictError):
        client.chat.completions.create(**HELLO, extra_headers=headers)


def test_extras_and_flex_work_for_chats(client, stack):
    raw = client.chat.completions.with_raw_response.create(
        **HELLO, service_tier="flex", metadata={"session_id": "a-chat"}
    )
    job = stack.job(raw.headers["x-longhaul-job-id"])
    assert (job["tier"], job["session_id"], raw.parse().service_tier) == ("batch", "a-chat", "flex")


def test_completions_read_the_prompt_as_it_stands(client):
    completion = client.completions.create(model=MODEL, prompt="[[say=and so on.]] Once", max_tokens=30)
    (choice,) = completion.choices
    assert completion.id.startswith("cmpl-")
    assert (completion.object, choice.text, choice.finish_reason) == ("text_completion", "and so on.", "stop")
    many = client.completions.create(model=MODEL, prompt=["One", "Two"], n=2, max_tokens=5, seed=3)
    assert [choice.index for choice in many.choices] == [0, 1, 2, 3]
    assert many.usage.completion_tokens == 20


def test_completions_are_streamed(client):
    body = {"model": MODEL, "prompt": "Once", "max_tokens": 10, "temperature": 0}
    whole = client.completions.create(**body, logprobs=2)
    chunks = list(
        client.completions.create(**body, logprobs=2, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(choice.text for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].text
    assert chunks[-1].usage.completion_tokens == 10
    logprobs = whole.choices[0].logprobs
    assert "".join(logprobs.tokens) == text
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 10
    assert logprobs.text_offset[0] in {0, len("Once")}


def test_models_are_listed_and_retrieved(client):
    listed = {model.id: model for model in client.models.list()}
    assert MODEL in listed
    assert client.models.retrieve(MODEL) == listed[MODEL]
    with pytest.raises(NotFoundError):
        client.models.retrieve("nothing")


def test_an_unknown_model_is_not_found(client):
    with pytest.raises(NotFoundError) as refusal:
        client.chat.completions.create(**{**HELLO, "model": "nothing"})
    assert (refusal.value.code, refusal.value.param) == ("model_not_found", "model")


def test_chats_see_the_same_words_whoever_asks(client, other):
    """Both web processes speak of the same jobs."""
    headers = {"Idempotency-Key": "both"}
    first = client.chat.completions.create(**STORY, max_tokens=5, extra_headers=headers)
    again = eventually(lambda: other.chat.completions.create(**STORY, max_tokens=5, extra_headers=headers))
    assert again == first
