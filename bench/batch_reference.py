"""vLLM's own `run-batch`, as a reference: `python -m bench.batch_reference MODEL FOLDER` runs the batch file of
the folder with the engine arguments and environment that our worker gives the same model. What is timed is what
it does once its engine has started and has run `WARM_UP`: read the file, answer every line, write the answers.
It knows nothing of our side.
"""

import asyncio
import importlib
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any, Final

import psutil

from bench.harness import BenchFailed, Platform
from bench.served import flags_of
from config.catalogue import ModelSpec, catalogue

NAME: Final = "run-batch"
WARM_UP: Final = "warm-up.jsonl"
INPUT: Final = "input.jsonl"
OUTPUT: Final = "output.jsonl"
STARTED: Final = "started"
SECONDS: Final = "seconds"
PATIENCE_SECONDS: Final = 1800.0
# What its `run-batch` command runs; the command itself looks for metadata that the CPU wheel lacks.
RUNNER: Final = "vllm.entrypoints.launchers.run_batch"
ENGINE: Final = "vllm.entrypoints.launchers.api_server.entry"


def run_reference(started: Platform, model: str, folder: Path) -> tuple[float, list[bytes]]:
    """The seconds it took, and the lines of its output."""
    for name in (STARTED, SECONDS):
        (folder / name).unlink(missing_ok=True)
    command = f"{sys.executable} -m bench.batch_reference {model} {folder}"
    process = started.start(NAME, command, (folder / STARTED).exists)
    try:
        _wait(process, folder / SECONDS)
    finally:
        started.kill(NAME)
    return float((folder / SECONDS).read_text()), (folder / OUTPUT).read_bytes().splitlines()


def _wait(process: psutil.Process, result: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not result.exists():
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE or time.monotonic() > deadline:
            raise BenchFailed("vLLM's run-batch did not end.")
        time.sleep(0.1)


async def _run(spec: ModelSpec, folder: Path) -> None:
    flags = flags_of(spec)  # sets vLLM's environment, before its import
    runner, launcher = importlib.import_module(RUNNER), importlib.import_module(ENGINE)
    args = _arguments(runner, spec, flags, folder)
    async with launcher.build_async_engine_client(args) as engine:
        args.input_file = str(folder / WARM_UP)
        await runner.run_batch(engine, args)
        args.input_file = str(folder / INPUT)
        (folder / STARTED).touch()
        began = time.monotonic()
        await runner.run_batch(engine, args)
        taken = folder / f"{SECONDS}.new"
        taken.write_text(str(time.monotonic() - began))
        taken.rename(folder / SECONDS)


def _arguments(runner: Any, spec: ModelSpec, flags: list[str], folder: Path) -> Namespace:
    sys.argv[1:] = [*flags, "-i", str(folder / INPUT), "-o", str(folder / OUTPUT), "--disable-log-stats"]
    if spec.chat_template_path:
        sys.argv += ["--chat-template", str(spec.chat_template_path)]
    found: Namespace = runner.parse_args()
    return found


if __name__ == "__main__":
    asyncio.run(_run(catalogue()[sys.argv[1]], Path(sys.argv[2])))
