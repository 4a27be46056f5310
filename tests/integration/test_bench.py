"""The benches run, and say what they found in the agreed shape."""

import subprocess
import sys

import orjson
import pytest

from bench.clients import Heard, StreamBroken
from bench.served import flags_of
from config.catalogue import catalogue
from tests.conftest import ROOT


def bench(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_without_a_name_it_lists_the_benches():
    done = bench()
    assert done.returncode == 0
    for name in (
        "overhead", "ttft", "submit", "ceiling", "followers", "line", "fairness", "depth", "overload", "batch",
    ):  # fmt: skip
        assert f"  {name} " in done.stdout


def test_an_unknown_name_is_refused_with_the_known_ones():
    done = bench("speed")
    assert done.returncode == 2
    assert "ceiling" in done.stderr


def test_an_engine_is_chosen_only_where_a_bench_offers_it():
    done = bench("submit", "--engine", "vllm")
    assert done.returncode == 2
    assert "--engine" in done.stderr


def chunk(**delta):
    return {"choices": [{"delta": delta}]}


def test_naming_the_role_is_not_yet_a_first_token():
    heard = Heard()
    heard.take(chunk(role="assistant", content=""), 1.0)
    assert heard.first_token_at == 0.0
    heard.take(chunk(content="Hello"), 2.0)
    heard.take(chunk(content=" there"), 3.0)
    assert heard.first_token_at == 2.0


def test_an_error_in_a_chat_stream_fails_the_bench():
    with pytest.raises(StreamBroken, match="overloaded"):
        Heard().take({"error": {"message": "overloaded"}}, 1.0)


@pytest.mark.vllm
def test_vllms_own_server_is_given_all_that_our_engine_is_given():
    spec = catalogue()["smollm2"]
    flags = flags_of(spec)
    from vllm import AsyncEngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parsed = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser()).parse_args(flags)
    assert parsed.model == spec.weights_path
    assert (parsed.max_num_seqs, parsed.max_model_len) == (spec.slots, spec.context_tokens)
    assert parsed.structured_outputs_config.backend == "xgrammar"
    for name, value in spec.engine_options.items():
        assert getattr(parsed, name) == value


@pytest.mark.parametrize(
    "name",
    [
        "submit",
        "depth",
        pytest.param("batch", marks=pytest.mark.slow),
        pytest.param("line", marks=pytest.mark.slow),
        pytest.param("fairness", marks=pytest.mark.slow),
        pytest.param("overload", marks=pytest.mark.slow),
        pytest.param("followers", marks=pytest.mark.slow),
        pytest.param("ceiling", marks=pytest.mark.slow),
        pytest.param("ttft --engine simulated", marks=pytest.mark.slow),  # vLLM's own server takes minutes
        pytest.param("overhead", marks=[pytest.mark.slow, pytest.mark.vllm]),
    ],
)
def test_a_bench_ends_with_its_aims_as_one_line_of_json(name):
    done = bench(*name.split(), "--quick", "--json")
    assert done.returncode == 0, done.stderr
    found = orjson.loads(done.stdout.splitlines()[-1])
    assert found["bench"] == name.split()[0]
    assert "spread" in found
    assert all(set(aim) == {"name", "value", "reference", "unit", "aim", "ok"} for aim in found["aims"])
    assert found["aims"]
    assert "reference" in done.stdout.splitlines()[0]
