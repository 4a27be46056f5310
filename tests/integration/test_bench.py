"""The benches run, and say what they found in the agreed shape."""

import subprocess
import sys

import orjson
import pytest

from tests.conftest import ROOT


def bench(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_without_a_name_it_lists_the_benches():
    done = bench()
    assert done.returncode == 0
    for name in (
        "overhead", "ttft", "submit", "ceiling", "followers", "line", "fairness", "depth", "overload",
    ):  # fmt: skip
        assert f"  {name} " in done.stdout


def test_an_unknown_name_is_refused_with_the_known_ones():
    done = bench("speed")
    assert done.returncode == 2
    assert "ceiling" in done.stderr


def test_an_engine_is_chosen_for_the_line_alone():
    done = bench("submit", "--engine", "vllm")
    assert done.returncode == 2
    assert "--engine" in done.stderr


@pytest.mark.parametrize(
    "name",
    [
        "submit",
        "depth",
        pytest.param("line", marks=pytest.mark.slow),
        pytest.param("fairness", marks=pytest.mark.slow),
        pytest.param("overload", marks=pytest.mark.slow),
        pytest.param("followers", marks=pytest.mark.slow),
        pytest.param("ceiling", marks=pytest.mark.slow),
        pytest.param("ttft", marks=[pytest.mark.slow, pytest.mark.vllm]),
        pytest.param("overhead", marks=[pytest.mark.slow, pytest.mark.vllm]),
    ],
)
def test_a_bench_ends_with_its_aims_as_one_line_of_json(name):
    done = bench(name, "--quick", "--json")
    assert done.returncode == 0, done.stderr
    found = orjson.loads(done.stdout.splitlines()[-1])
    assert found["bench"] == name
    assert "spread" in found
    assert all(set(aim) == {"name", "value", "reference", "unit", "aim", "ok"} for aim in found["aims"])
    assert found["aims"]
    assert "reference" in done.stdout.splitlines()[0]
