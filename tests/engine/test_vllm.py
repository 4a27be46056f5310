"""What is particular to the vLLM engine: its tokenizer, its penalties and the deaths of its processes."""

import json
import random
import signal
import subprocess
import sys
import warnings
from contextlib import contextmanager
from types import SimpleNamespace

import psutil
import pytest

from tests.engine.conftest import VLLM_MARKS, vllm_spec
from tests.engine.test_orphans import is_gone_within
from workers.engine.decoding import read_vocabulary

pytestmark = VLLM_MARKS


@pytest.fixture(scope="module")
def tokenizer():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoTokenizer
    return AutoTokenizer.from_pretrained(vllm_spec().weights_path)


def test_our_decoder_says_what_the_tokenizer_says(tokenizer):
    vocabulary = read_vocabulary(tokenizer.backend_tokenizer, len(tokenizer))
    dice = random.Random(4)

    for _ in range(500):
        ids = [dice.randrange(len(tokenizer)) for _ in range(20)]
        assert vocabulary.decode(ids) == tokenizer.decode(ids, skip_special_tokens=True)
        decoder = vocabulary.decoder()
        assert "".join(decoder.step(token) for token in ids) + decoder.flush() == vocabulary.decode(ids)


def test_a_vocabulary_reaches_as_far_as_the_model_s_padding(tokenizer):
    vocabulary = read_vocabulary(tokenizer.backend_tokenizer, len(tokenizer) + 64)

    assert vocabulary.decode([len(tokenizer) + 63]) == ""


@pytest.fixture(scope="module")
def torch():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        import vllm  # noqa: F401
    return torch


def test_the_second_model_runner_s_penalties_equal_vllm_s_own(torch):
    """It needs a GPU to run; here its processor gets the state that it would find there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from vllm.model_executor.layers.utils import apply_penalties

        from workers.engine.vllm_penalties import RunnerV2ContinuedPenalties, penalties_of
    from workers.engine import Call, Sampling

    prompt, output = [1, 2, 2], [3, 4, 3, 5]
    sampling = Sampling(max_tokens=9, presence_penalty=0.8, frequency_penalty=0.5, repetition_penalty=1.3)
    call = Call("call", prompt, sampling, prior_ids=output[:2])
    slots = torch.zeros(4, 16, dtype=torch.int32)
    slots[3, :7] = torch.tensor(prompt + output)
    processor = RunnerV2ContinuedPenalties(None, SimpleNamespace(all_token_ids=SimpleNamespace(gpu=slots)))
    assert processor.add_request(3, SimpleNamespace(**penalties_of(call)))
    assert not processor.add_request(1, SimpleNamespace(extra_args=None))
    logits = torch.randn(2, 8)
    expected = apply_penalties(
        logits[1:].clone(),
        torch.tensor([prompt]),
        torch.tensor([output]),
        *(torch.tensor([value]) for value in (0.8, 0.5, 1.3)),
    )
    untouched = logits[0].clone()

    import numpy as np

    step = SimpleNamespace(idx_mapping_np=np.array([1, 3]), seq_lens_upper_bound_np=np.array([9, 7]))
    result = processor.apply(logits, step)

    assert torch.equal(result[1], expected[0])
    assert torch.equal(result[0], untouched)


@contextmanager
def engine_process():
    """A process with a generating engine, and its child processes by id."""
    command = [sys.executable, "-m", "tests.engine.vllm_process"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        children = {int(pid): name for pid, name in json.loads(process.stdout.readline())["children"].items()}
        try:
            yield process, children
        finally:
            process.kill()


@pytest.mark.slow
def test_an_engine_process_dies_with_its_killed_worker():
    with engine_process() as (process, children):
        assert children
        process.send_signal(signal.SIGKILL)
        assert all(is_gone_within(pid, seconds=2) for pid in children)


@pytest.mark.slow
def test_a_killed_engine_process_ends_its_calls_as_dead():
    with engine_process() as (process, children):
        core = next(pid for pid, name in children.items() if "EngineCor" in name)
        psutil.Process(core).kill()
        assert json.loads(process.stdout.readline()) == {"end": "dead"}
        process.wait(60)
        assert all(is_gone_within(pid, seconds=5) for pid in children)
