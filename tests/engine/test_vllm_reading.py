"""vLLM's parsers behind our reader, with a tokenizer that knows where thoughts begin and end."""

import json
import logging
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from app.jobs.prompts import ToolUse
from tests.engine.conftest import VLLM_MARKS, WEATHER, running, vllm_spec
from tests.engine.folding import Folded, fold
from workers.engine import FinishReason, Sampling
from workers.engine.decoding import read_vocabulary

pytestmark = VLLM_MARKS

CALL = '<tool_call>\n{"name": "stop", "arguments": {"a": 1}}\n</tool_call>'
SCHEMA = {"type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}}, "required": ["kind"]}


@pytest.fixture(scope="module", autouse=True)
def vllm():
    """Importing it and torch warns about their own insides."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import vllm

        import workers.engine.vllm_reading  # noqa: F401
    return vllm


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The model, with two of its unused special tokens renamed."""
    path, own = tmp_path_factory.mktemp("thinking"), Path(vllm_spec().weights_path)
    for file in own.iterdir():
        (path / file.name).symlink_to(file.resolve())
    text = (own / "tokenizer.json").read_text()
    (path / "tokenizer.json").unlink()
    renamed = text.replace('"<repo_name>"', '"<think>"').replace('"<file_sep>"', '"</think>"')
    (path / "tokenizer.json").write_text(renamed)
    return path


def thinking(folder, parser="deepseek_r1"):
    changes = {"source": None, "weights": str(folder), "reasoning_parser": parser}
    return vllm_spec().model_copy(update=changes)


@pytest.fixture(scope="module", params=["deepseek_r1", "qwen3"])
def reading(request, folder):
    """The parsers without their engine, and how to encode text."""
    from transformers import AutoTokenizer
    from vllm import AsyncEngineArgs

    from workers.engine.vllm_reading import VllmReading

    tokenizer = AutoTokenizer.from_pretrained(folder)
    vocabulary = read_vocabulary(tokenizer.backend_tokenizer, len(tokenizer))
    config = AsyncEngineArgs(model=str(folder)).create_model_config()
    ends = frozenset({tokenizer.eos_token_id})
    return VllmReading(thinking(folder, request.param), config, vocabulary, ends), vocabulary, tokenizer


def read(reading, text, use=WEATHER, prompt="", cut=None):
    parsers, vocabulary, tokenizer = reading
    prompt_ids = tokenizer(prompt).input_ids
    ids = [*tokenizer(text).input_ids, tokenizer.eos_token_id]
    reader, decoder = parsers.reader(use, prompt_ids, "job_1"), vocabulary.decoder()
    found = []
    for at, token in enumerate(ids):
        if at == cut:
            reader, decoder = parsers.reader(use, prompt_ids, "job_1"), vocabulary.decoder()
            again = [part for earlier in ids[:cut] for part in reader.feed(decoder.step(earlier), [earlier])]
            assert again == found
        found += reader.feed(decoder.step(token), [token])
    return fold([*found, *reader.finish()]), sum(part.get("tokens", 0) for part in found)


def test_special_tokens_that_show_nothing_part_thoughts_from_words(reading):
    found, tokens = read(reading, "<think>A cat, I think.</think>It is a cat.")

    assert found == Folded(content="It is a cat.", reasoning="A cat, I think.")
    assert 5 <= tokens <= 8


def test_thoughts_words_and_a_call_come_apart_wherever_an_attempt_ended(reading):
    text = f"<think>Hm.</think>I stop. {CALL}"
    found, _ = read(reading, text)

    assert (found.reasoning, found.content.strip()) == ("Hm.", "I stop.")
    assert [(call["name"], json.loads(call["arguments"])) for call in found.calls] == [("stop", {"a": 1})]
    for cut in range(1, 30, 3):
        assert read(reading, text, cut=cut)[0] == found


def test_a_model_that_may_call_nothing_still_reasons(reading):
    found, _ = read(reading, "<think>Hm.</think>Yes.", use=None)

    assert found == Folded(content="Yes.", reasoning="Hm.")


def test_a_prompt_may_have_begun_the_thought(reading):
    found, _ = read(reading, "Hm.</think>Yes.", prompt="Think.<think>")

    assert found == Folded(content="Yes.", reasoning="Hm.")


def test_a_thought_that_is_cut_off_is_a_thought(reading):
    found, _ = read(reading, "<think>Hm, so far")

    assert found == Folded(reasoning="Hm, so far")


def test_special_tokens_that_no_parser_knows_show_nothing(reading):
    found, _ = read(reading, "<think>Hm<gh_stars>.</think>Y<|im_start|>es<gh_stars>.")

    assert found == Folded(content="Yes.", reasoning="Hm.")


@pytest.mark.parametrize(
    ("choice", "strict", "calls", "holds"),
    [
        ({}, (), "many", False),
        ({}, ("get_weather",), "many", True),
        ({"choice": "required"}, (), "many", True),
        ({"choice": "required", "is_parallel": False}, (), "one", True),
        ({"choice": "get_weather", "is_named": True}, (), "one", True),
    ],
    ids=["auto", "strict", "required", "required, one call", "named"],
)
def test_a_grammar_holds_forced_and_strict_calls_to_their_parameters(reading, choice, strict, calls, holds):
    use = replace(WEATHER, **choice, strict=frozenset(strict))
    found = reading[0].structured_outputs(Sampling(max_tokens=9, tool_use=use))

    assert (found is not None) == holds
    if found is not None:
        assert ("Oslo" in found.structural_tag) == holds
        assert ('"stop_after_first": true' in found.structural_tag) == (calls == "one")


def test_a_forced_call_whose_parameters_no_grammar_knows_is_an_object_at_least(reading):
    function = {"name": "f", "parameters": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}}
    use = ToolUse(({"type": "function", "function": function},), "required")

    found = reading[0].structured_outputs(Sampling(max_tokens=9, tool_use=use)).structural_tag

    assert '"json_schema": {"type": "object"}' in found


class FailingParser:
    """Says what it reads, until it fails on a word."""

    def parse_delta(self, text, *_, **__):
        if "bad" in text:
            raise IndexError("slip")
        return SimpleNamespace(content=text, reasoning=None, tool_calls=[])


def test_a_parser_that_fails_leaves_the_rest_as_plain_text(reading, caplog):
    from workers.engine.vllm_reading import VllmReader

    parsers, vocabulary, tokenizer = reading
    reader, decoder = VllmReader(parsers, FailingParser(), None, [], "job_1"), vocabulary.decoder()
    found = []
    with caplog.at_level(logging.ERROR):
        for token in tokenizer(f"All is bad now. {CALL}").input_ids:
            found += reader.feed(decoder.step(token), [token])

    assert fold([*found, *reader.finish()]).content == f"All is bad now. {CALL}"
    assert len([record for record in caplog.records if "parser failed" in record.message]) == 1


def test_a_parser_that_vllm_lacks_or_that_misses_its_tokens_is_refused(folder):
    from vllm import AsyncEngineArgs

    from workers.engine.vllm_reading import VllmReading

    own = Path(vllm_spec().weights_path)
    for path, name in ((folder, "nonsense"), (own, "deepseek_r1")):
        config = AsyncEngineArgs(model=str(path)).create_model_config()
        with pytest.raises(TypeError):
            VllmReading(thinking(path, name), config, read_vocabulary_of(path), frozenset())


def read_vocabulary_of(folder):
    from tokenizers import Tokenizer

    return read_vocabulary(Tokenizer.from_file(str(folder / "tokenizer.json")), 0)


@pytest.mark.slow
def test_reasoning_comes_first_and_then_the_grammar(folder):
    with running(thinking(folder, "deepseek_r1")) as subject:
        end_of_thought = subject.encode_plain("</think>")[0]
        free = subject.answer("A cat or a dog?", json_schema=SCHEMA, max_tokens=12)
        ended = subject.answer(
            "A cat or a dog?", json_schema=SCHEMA, max_tokens=60, logit_bias={end_of_thought: 100.0}
        )
        forced = subject.answer(
            "A cat or a dog?", tool_use=replace(WEATHER, choice="required"), max_tokens=90,
            logit_bias={end_of_thought: 100.0},
        )  # fmt: skip

        assert fold(subject.parts(free.ids)).content == ""
        said = fold(subject.parts(ended.ids))
        assert ended.finish is FinishReason.STOP
        jsonschema.validate(json.loads(said.content), SCHEMA)
        assert fold(subject.parts(forced.ids, (), WEATHER)).calls
