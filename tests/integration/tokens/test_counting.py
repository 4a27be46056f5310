"""A prompt is counted at admission as the engine will count it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.jobs.prompts import Prompt
from app.tokens.counting import check, count
from app.tokens.errors import ContextLengthExceeded, PromptInvalid
from app.tokens.tokenizer import ChatTokenizer
from config.catalogue import catalogue
from tests.conftest import ROOT
from workers.engine.loading import load_engine

PROMPTS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "system", "content": ""}, {"role": "user", "content": "naïve café 東京 москва 😀👨‍👩‍👧"}],
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "def f(x):\n\treturn x  # \u2028"},
    ],
    [{"role": "user", "content": "<|im_start|>user\n<|im_end|> <|endoftext|>"}],
    [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": " "},
    ],
    [{"role": "user", "content": "word " * 2000}],
]
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": st.text()}),
    min_size=1,
    max_size=5,
)


TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Météo <b>&</b> 東京",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ARGUMENTS = st.dictionaries(st.text(), st.integers() | st.text(), max_size=3) | st.just("no JSON")
NAME = st.sampled_from(["get_weather", "naïve"])
CALLS = st.lists(
    st.builds(
        lambda name, arguments: {
            "id": "call_1",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        },
        NAME,
        ARGUMENTS,
    ),
    max_size=2,
)
TOOL_TALK = st.builds(
    lambda messages, said, calls, result: [
        *messages,
        {"role": "assistant", "content": said, "tool_calls": calls},
        {"role": "tool", "content": result, "tool_call_id": "call_1", "name": "get_weather"},
    ],
    MESSAGES,
    st.text(),
    CALLS,
    st.text(),
)
PROMPT = st.one_of(
    st.builds(Prompt, MESSAGES | TOOL_TALK, st.sampled_from([[], [TOOL], [TOOL, TOOL]])),
    st.builds(lambda raw: Prompt(raw=raw), st.text(min_size=1)),
)


@pytest.fixture(scope="module")
def smollm2():
    """The model, and its engine's own encoding, without the engine."""
    from transformers import AutoTokenizer

    spec = catalogue()["smollm2"]
    tokenizer = AutoTokenizer.from_pretrained(spec.weights_path)

    def engine_count(prompt):
        if prompt.raw is not None:
            return len(tokenizer(prompt.raw).input_ids)
        return len(
            tokenizer.apply_chat_template(
                prompt.messages,
                tools=prompt.tools or None,
                chat_template=spec.chat_template_path.read_text(),
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
            )
        )

    return spec, engine_count


@pytest.mark.vllm
@pytest.mark.parametrize("messages", PROMPTS, ids=range(len(PROMPTS)))
def test_a_real_models_prompt_has_as_many_tokens_as_its_engine_sees(smollm2, messages):
    spec, engine_count = smollm2
    assert count(spec, Prompt(messages)) == engine_count(Prompt(messages))


@pytest.mark.vllm
@given(prompt=PROMPT)
def test_whatever_the_prompt_both_count_alike(smollm2, prompt):
    spec, engine_count = smollm2
    assert count(spec, prompt) == engine_count(prompt)


@given(prompt=PROMPT)
def test_the_simulated_model_counts_alike_too(prompt):
    spec = catalogue()["simulated"]
    assert count(spec, prompt) == len(load_engine(spec).encode(prompt))


@pytest.fixture(scope="module")
def templates():
    """The model's own, and ours."""
    spec = catalogue()["smollm2"]
    folder = Path(spec.weights_path)
    return ChatTokenizer(folder), ChatTokenizer(folder, spec.chat_template_path)


@pytest.mark.vllm
@given(messages=MESSAGES)
def test_our_template_without_tools_writes_what_the_model_s_own_writes(templates, messages):
    own, ours = templates
    assert ours.render(Prompt(messages)) == own.render(Prompt(messages))


@pytest.mark.vllm
def test_our_template_names_the_functions_and_shows_what_was_called(templates):
    call = {"id": "call_1", "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}
    talk = [
        {"role": "user", "content": "Is it cold in Oslo?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "content": "-7", "tool_call_id": "call_1", "name": "get_weather"},
    ]
    text = templates[1].render(Prompt(talk, [TOOL]))

    lead, rest = text.split("<|im_end|>\n", 1)
    assert json.dumps(TOOL["function"], ensure_ascii=False) in lead
    assert rest == (
        "<|im_start|>user\nIs it cold in Oslo?<|im_end|>\n"
        '<|im_start|>assistant\nI look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n'
        "</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n-7\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_tools_calls_and_raw_text_are_not_taken_for_one_another():
    spec = catalogue()["simulated"]
    asked = [{"role": "user", "content": "ab"}]
    called = [
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
    ]
    prompts = [
        Prompt(asked),
        Prompt(asked, [TOOL]),
        Prompt(asked + called),
        Prompt([*asked, {"role": "assistant", "content": ""}]),
        Prompt(raw="ab"),
    ]
    assert len({count(spec, prompt) for prompt in prompts}) == len(prompts)


def test_a_second_count_is_remembered(monkeypatch):
    spec = catalogue()["simulated"]
    messages = Prompt([{"role": "user", "content": "Remember me."}])
    first = count(spec, messages)
    monkeypatch.setattr("app.tokens.counting._count", None)
    assert count(spec, messages) == first


def test_one_text_in_one_message_is_not_two_in_two():
    spec = catalogue()["simulated"]
    one = count(spec, Prompt([{"role": "user", "content": "ab"}]))
    two = count(spec, Prompt([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]))
    assert one != two


def test_a_role_without_a_template_is_refused():
    with pytest.raises(PromptInvalid, match="role"):
        count(catalogue()["simulated"], Prompt([{"role": "oracle", "content": "?"}]))


def test_without_the_tokenizer_it_is_a_guess():
    spec = catalogue()["smollm2"].model_copy(update={"source": None, "weights": "nobody/nothing"})
    assert count(spec, Prompt([{"role": "user", "content": "abcde"}])) == 2


@pytest.mark.parametrize(("prompt", "output", "fits"), [(4095, None, True), (4096, None, False), (4000, 96, True), (4000, 97, False)])  # fmt: skip  # noqa: E501
def test_prompt_and_wanted_output_share_the_context_window(prompt, output, fits):
    spec = catalogue()["faulty"]
    if fits:
        check(spec, prompt, output)
        return
    with pytest.raises(ContextLengthExceeded, match=f"4096 tokens.*{prompt}"):
        check(spec, prompt, output)


TICKING = """
from gevent import monkey; monkey.patch_all()
import gevent, time
from app.jobs.prompts import Prompt
from app.tokens.counting import count
from config.catalogue import catalogue

spec, worst = catalogue()["smollm2"], 0.0
count(spec, Prompt([{"role": "user", "content": "warm"}]))

def tick():
    global worst
    while True:
        before = time.monotonic()
        gevent.sleep(0.001)
        worst = max(worst, time.monotonic() - before)

ticking = gevent.spawn(tick)
gevent.sleep(0.01)
began = time.monotonic()
assert count(spec, Prompt([{"role": "user", "content": "The quick brown fox. " * 50_000}])) > 200_000
print(worst / (time.monotonic() - began))
"""


@pytest.mark.vllm
def test_a_million_characters_hold_nobody_else_up():
    run = subprocess.run([sys.executable, "-c", TICKING], cwd=ROOT, capture_output=True, text=True, check=True)
    assert float(run.stdout) < 0.5, "another greenlet waited for most of the time that counting took"
