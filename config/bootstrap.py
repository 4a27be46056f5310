"""Set up the virtual environment: `python3 config/bootstrap.py`. Runs on the system's Python before anything is
installed, hence on the standard library alone. An interrupted set-up is repaired by the next; a finished one
is recognised and costs nothing.

torch's CPU build is not on the package index. First pip is tried as this machine has it configured; only if
that finds no such build, torch alone is taken from PyTorch's own index (`TORCH_INDEX`).
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
VENV: Final = ROOT / ".venv"
STAMP: Final = VENV / "longhaul-setup"
UNFINISHED: Final = VENV / "longhaul-setup-unfinished"
LOG: Final = ROOT / "var" / "log" / "setup.log"
PYTHONS: Final = ((3, 11), (3, 13))
NEEDED_BYTES: Final = {"cpu": 6_000_000_000, "gpu": 20_000_000_000}
WITHOUT_ENGINE_BYTES: Final = 1_000_000_000
LOG_LINES_SHOWN: Final = 15

# Text serving needs neither, and builds for another torch break its import.
BYSTANDERS: Final = ("torchvision", "torchaudio", "torchcodec")


class SetupFailed(Exception):
    """A plain sentence."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Set up Longhaul's virtual environment.")
    parser.add_argument("--extras", default="cpu,test,dev", help="of pyproject.toml; gpu in place of cpu")
    parser.add_argument("--torch-index", default="https://download.pytorch.org/whl/cpu")
    options = parser.parse_args()
    try:
        set_up(options.extras, options.torch_index)
    except SetupFailed as error:
        sys.exit(f"longhaul: {error}")
    except OSError as error:
        sys.exit(f"longhaul: cannot set up {VENV}: {error.strerror or error}.")
    except KeyboardInterrupt:
        sys.exit("longhaul: set-up was interrupted; run it again to go on.")


def set_up(extras: str, torch_index: str) -> None:
    check_python(sys.version_info[:2])
    fingerprint = fingerprint_of(extras)
    if STAMP.is_file() and STAMP.read_text() == fingerprint:
        return
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("w", encoding="utf-8") as log:
        # pip takes a package that an interrupted run left half unpacked for installed: begin again.
        if UNFINISHED.exists() or not is_usable(VENV):
            check_disk(extras, shutil.disk_usage(ROOT).free)
            step("Making a virtual environment", [sys.executable, "-m", "venv", "--clear", str(VENV)], log)
        UNFINISHED.touch()
        STAMP.unlink(missing_ok=True)
        install(extras, torch_index, log)
        remove_broken_bystanders(log)
    STAMP.write_text(fingerprint)
    UNFINISHED.unlink()


def check_python(version: tuple[int, int]) -> None:
    """Raises `SetupFailed` for a Python that our dependencies do not support."""
    oldest, newest = PYTHONS
    if not oldest <= version <= newest:
        raise SetupFailed(
            f"Python {version[0]}.{version[1]} is not supported; use 3.{oldest[1]} to 3.{newest[1]}, "
            "for example: make setup PYTHON=python3.11"
        )


def check_disk(extras: str, free_bytes: int) -> None:
    """Raises `SetupFailed` if the packages will not fit."""
    needed = max(NEEDED_BYTES.get(extra, WITHOUT_ENGINE_BYTES) for extra in extras.split(","))
    if free_bytes < needed:
        raise SetupFailed(
            f"the packages need about {needed / 1e9:.0f} GB and {ROOT} has {free_bytes / 1e9:.1f} GB free."
        )


def constraints_of(extras: str) -> list[Path]:
    """The engine's pins are those of its CPU build, and go with that alone."""
    names = ["constraints.txt", *(["constraints-cpu.txt"] if "cpu" in extras.split(",") else [])]
    return [ROOT / name for name in names]


def fingerprint_of(extras: str) -> str:
    """Changes whenever what is to be installed does."""
    digest = hashlib.sha256(f"{extras} {sys.version} {ROOT}".encode())
    for path in (ROOT / "pyproject.toml", *constraints_of(extras)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def is_usable(venv: Path) -> bool:
    """Whether the environment's Python runs and has pip; an interrupted one may not."""
    python = venv / "bin" / "python"
    if not python.exists():
        return False
    checked = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False)
    return checked.returncode == 0


def install(extras: str, torch_index: str, log: IO[str]) -> None:
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    if "cpu" in extras.split(","):
        provide_torch(pip, torch_index, log)
    constraints = [word for path in constraints_of(extras) for word in ("-c", str(path))]
    project = ["-e", f"{ROOT}[{extras}]"]
    step("Installing packages (a few minutes the first time)", [*pip, *constraints, *project], log)


def provide_torch(pip: Sequence[str], torch_index: str, log: IO[str]) -> None:
    """Install the CPU build that the cpu extra names, and nothing else, from `torch_index`, unless pip finds it
    as it is configured here; then the extra itself installs it.
    """
    import tomllib  # noqa: PLC0415 (an older Python has none, and is to be told so in a sentence)

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    torch = next(requirement for requirement in extras["cpu"] if requirement.startswith("torch=="))
    look = [*pip, "--dry-run", "--no-deps", "--quiet", torch]
    if subprocess.run(look, stdout=log, stderr=log, check=False).returncode:
        title = f"Installing {torch}, which pip does not find here, from {torch_index}"
        step(title, [*pip, "--no-deps", "--retries", "2", "--index-url", torch_index, torch], log)


def remove_broken_bystanders(log: IO[str]) -> None:
    python = str(VENV / "bin" / "python")
    for package in BYSTANDERS:
        look = f"import importlib.util; importlib.util.find_spec({package!r}) and __import__({package!r})"
        if subprocess.run([python, "-c", look], stdout=log, stderr=log, check=False).returncode:
            title = f"Removing {package}, which does not fit torch"
            step(title, [python, "-m", "pip", "uninstall", "-y", package], log)


def step(title: str, command: Sequence[str], log: IO[str]) -> None:
    """Run a command with its output in the log and its title and duration on the terminal. Raises
    `SetupFailed` with the end of the log.
    """
    began = time.monotonic()
    print(f"  {title} ...", end="", flush=True)
    finished = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    print(f" {time.monotonic() - began:.0f} s", flush=True)
    if finished.returncode:
        raise SetupFailed(f"{title.split(' (', maxsplit=1)[0]} failed. {explain()}")


def explain() -> str:
    lines = LOG.read_text(encoding="utf-8", errors="replace").splitlines()
    if any("No space left on device" in line for line in lines):
        return f"The disk is full ({ROOT})."
    shown = "\n    ".join(lines[-LOG_LINES_SHOWN:])
    return f"The end of {LOG}:\n    {shown}"


if __name__ == "__main__":
    main()
