"""Whatever a model's files say, its prompts are counted as transformers makes them."""

import json
import os
import shutil
from pathlib import Path

import pytest

from app.jobs.prompts import Prompt
from app.tokens.counting import count
from app.tokens.errors import PromptInvalid
from app.tokens.tokenizer import ChatTokenizer
from config.catalogue import catalogue

pytestmark = pytest.mark.vllm  # for the converted model's files and transformers; no engine is started

CHAT = [
    {"role": "system", "content": "É <b>&</b>"},
    {"role": "user", "content": "Hi 'you', <extra> <|pad|> " + "word " * 600},
    {"role": "assistant", "content": "yo"},
    {"role": "user", "content": "a\nb"},
]
SAID = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"

TEMPLATES = {
    "generation": SAID + "{% generation %}{% set n = 1 %}{{ messages[0].content }}{% endgeneration %}{{ n }}",
    "no tools": SAID + "{% if tools is not none %}here are your tools{% endif %}",
    "tools known": SAID + "{% if tools is defined %}tools are known of{% endif %}",
    "no documents": SAID + "{% if documents is not none %}here are your documents{% endif %}",
    "compact json": "{{ messages | tojson(separators=(',', ':'), sort_keys=true) }}",
    "ascii json": "{{ messages | tojson(true) }}",
    "indented json": "{{ messages | tojson(indent=4) }}",
    "plain json": "{{ messages | tojson }}",
    "break": "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
    "special tokens": SAID + "{{ bos_token }}{{ eos_token }}{{ cls_token }}",
    "blank space": "  {% if true %}  \n  {{ messages[0].content }}\n  {% endif %}\n\n東京\n\n",
}
CONFIGS = {
    "a token of its own": {"extra_special_tokens": {"image_token": "<extra>"}},
    "tokens without names": {"extra_special_tokens": ["<extra>"]},
    "tokens without names, as once": {"additional_special_tokens": ["<extra>"]},
    "a pad token that the tokenizer lacks": {"pad_token": "<|pad|>"},
    "tokens as objects": {"bos_token": {"__type": "AddedToken", "content": "<extra>", "lstrip": True}},
    "no token": {"bos_token": None},
    "an added word": {"added_tokens_decoder": {"49152": {"content": "word word word", "normalized": False}}},
}
TRUNCATED = {"truncation": {"direction": "Right", "max_length": 64, "strategy": "LongestFirst", "stride": 0}}
PADDED = {
    "padding": {
        "strategy": {"Fixed": 2048},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }
}


@pytest.fixture
def folder(tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"):
        shutil.copy(Path(catalogue()["smollm2"].weights_path) / name, tmp_path)
    return tmp_path


@pytest.fixture
def spec(folder):
    changes = {"source": None, "weights": str(folder), "chat_template": ""}
    return catalogue()["smollm2"].model_copy(update=changes)


def change(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def engine_count(folder, messages=CHAT):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return len(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False))


def our_count(folder, messages=CHAT):
    tokenizer = ChatTokenizer(folder)
    return tokenizer.count(tokenizer.render(Prompt(messages)))


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES.keys())
def test_a_template_is_offered_what_transformers_offers_it(folder, template):
    (folder / "chat_template.jinja").write_text(template)
    assert our_count(folder) == engine_count(folder)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_tokens_that_the_configuration_names_count_as_one(folder, config):
    change(folder / "tokenizer_config.json", **config)
    template = SAID + "{% for _ in range(9) %}{{ bos_token }}{{ image_token }}{% endfor %}"
    (folder / "chat_template.jinja").write_text(template)
    assert our_count(folder) == engine_count(folder)


def test_special_tokens_are_also_found_where_they_once_were(folder):
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["bos_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "special_tokens_map.json").write_text('{"bos_token": "<extra>"}')
    (folder / "chat_template.jinja").write_text("{{ bos_token * 9 }}" + SAID)
    assert our_count(folder) == engine_count(folder)


@pytest.mark.parametrize("fields", [TRUNCATED, PADDED], ids=["truncated", "padded"])
def test_a_prompt_is_neither_cut_nor_filled_up(folder, fields):
    change(folder / "tokenizer.json", **fields)
    assert our_count(folder) == engine_count(folder) > 600


@pytest.mark.parametrize(
    "template", [SAID, [{"name": "tool_use", "template": "no"}, {"name": "default", "template": SAID}]]
)
def test_a_template_may_be_in_the_configuration(folder, template):
    (folder / "chat_template.jinja").unlink()
    change(folder / "tokenizer_config.json", chat_template=template)
    assert our_count(folder) == engine_count(folder)


@pytest.mark.parametrize(
    "template", ["{{ raise_exception('Roles must alternate') }}", "{{ a.b.c }}", "{{ 1 / 0 }}", "{{ 'a' + 1 }}"]
)
def test_a_prompt_that_the_template_refuses_is_invalid(folder, spec, template):
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(PromptInvalid, match="refuses these messages"):
        count(spec, Prompt(CHAT))


def test_a_template_reaches_nothing_but_the_messages(folder, spec):
    (folder / "chat_template.jinja").write_text("{{ messages.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(PromptInvalid):
        count(spec, Prompt(CHAT))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", None),
        ("tokenizer.json", "{}"),
        ("tokenizer.json", "nothing"),
        ("tokenizer_config.json", None),
        ("tokenizer_config.json", "[]"),
        ("chat_template.jinja", None),
        ("chat_template.jinja", "{% if %}"),
    ],
)
def test_where_a_file_is_missing_or_broken_it_is_a_guess(folder, spec, name, content):
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    assert count(spec, Prompt([{"role": "user", "content": "x" * 401}])) == 101


def test_a_tokenizer_that_comes_later_ends_the_guessing(folder, spec):
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    (folder / "tokenizer.json").rename(folder / "elsewhere.json")
    guess = count(spec, Prompt(messages))
    (folder / "elsewhere.json").rename(folder / "tokenizer.json")
    assert count(spec, Prompt(messages)) == engine_count(folder, messages) != guess


def test_replaced_weights_are_counted_anew(folder, spec):
    messages = [{"role": "user", "content": "one <extra> two"}]
    before = count(spec, Prompt(messages))
    change(folder / "tokenizer_config.json", additional_special_tokens=["<extra>"])
    os.utime(folder / "tokenizer.json", ns=(1, 1))
    assert count(spec, Prompt(messages)) == engine_count(folder, messages) < before


BEGIN = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}},
}


@pytest.mark.parametrize("processor", [None, BEGIN], ids=["plain", "a token for the begin"])
def test_to_a_raw_text_the_tokenizer_adds_what_it_adds_for_the_engine(folder, spec, processor):
    from transformers import AutoTokenizer

    if processor is not None:
        change(folder / "tokenizer.json", post_processor=processor)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert count(spec, Prompt(raw="Once upon a time")) == len(tokenizer("Once upon a time").input_ids)
    assert count(spec, Prompt(CHAT)) == engine_count(folder)
