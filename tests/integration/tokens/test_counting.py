"""A prompt is counted at admission as the engine will count it."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.tokens.counting import check, count
from app.tokens.errors import ContextLengthExceeded, PromptInvalid
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


@pytest.fixture(scope="module")
def smollm2():
    from transformers import AutoTokenizer

    spec = catalogue()["smollm2"]
    tokenizer = AutoTokenizer.from_pretrained(spec.weights_path)

    def engine_count(messages):
        return len(
            tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=True, return_dict=False
            )
        )

    return spec, engine_count


@pytest.mark.vllm
@pytest.mark.parametrize("messages", PROMPTS, ids=range(len(PROMPTS)))
def test_a_real_models_prompt_has_as_many_tokens_as_its_engine_sees(smollm2, messages):
    spec, engine_count = smollm2
    assert count(spec, messages) == engine_count(messages)


@pytest.mark.vllm
@given(messages=MESSAGES)
def test_whatever_the_prompt_both_count_alike(smollm2, messages):
    spec, engine_count = smollm2
    assert count(spec, messages) == engine_count(messages)


@given(messages=MESSAGES)
def test_the_simulated_model_counts_alike_too(messages):
    spec = catalogue()["simulated"]
    assert count(spec, messages) == len(load_engine(spec).encode(messages))


def test_a_second_count_is_remembered(monkeypatch):
    spec = catalogue()["simulated"]
    messages = [{"role": "user", "content": "Remember me."}]
    first = count(spec, messages)
    monkeypatch.setattr("app.tokens.counting._count", None)
    assert count(spec, messages) == first


def test_one_text_in_one_message_is_not_two_in_two():
    spec = catalogue()["simulated"]
    one = count(spec, [{"role": "user", "content": "ab"}])
    two = count(spec, [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])
    assert one != two


def test_a_role_without_a_template_is_refused():
    with pytest.raises(PromptInvalid, match="role"):
        count(catalogue()["simulated"], [{"role": "oracle", "content": "?"}])


def test_without_the_tokenizer_it_is_a_guess():
    spec = catalogue()["smollm2"].model_copy(update={"source": None, "weights": "nobody/nothing"})
    assert count(spec, [{"role": "user", "content": "abcde"}]) == 2


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
from app.tokens.counting import count
from config.catalogue import catalogue

spec, worst = catalogue()["smollm2"], 0.0
count(spec, [{"role": "user", "content": "warm"}])

def tick():
    global worst
    while True:
        before = time.monotonic()
        gevent.sleep(0.001)
        worst = max(worst, time.monotonic() - before)

ticking = gevent.spawn(tick)
gevent.sleep(0.01)
began = time.monotonic()
assert count(spec, [{"role": "user", "content": "The quick brown fox. " * 50_000}]) > 200_000
print(worst / (time.monotonic() - began))
"""


@pytest.mark.vllm
def test_a_million_characters_hold_nobody_else_up():
    run = subprocess.run([sys.executable, "-c", TICKING], cwd=ROOT, capture_output=True, text=True, check=True)
    assert float(run.stdout) < 0.5, "another greenlet waited for most of the time that counting took"
