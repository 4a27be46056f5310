"""vLLM's own OpenAI server, as a reference: `python -m bench.served MODEL PORT` becomes it, on the loopback
interface, with the engine arguments and environment that our worker gives the same model. It knows nothing of
what is measured.
"""

import dataclasses
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import orjson

from bench.harness import Platform, answers
from config.catalogue import ModelSpec, catalogue
from workers.embedded.server import free_port
from workers.engine.loading import load_engine

NAME: Final = "served"
# Its `vllm` command looks for metadata that the CPU wheel lacks; this module is what the command runs.
SERVER: Final = "vllm.entrypoints.openai.api_server"


@contextmanager
def served(started: Platform, model: str) -> Iterator[str]:
    """Its address, while it serves. It dies with the bench."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = f"{sys.executable} -m bench.served {model} {port}"
    started.start(NAME, command, lambda: answers(f"{url}/health"))
    try:
        yield url
    finally:
        started.kill(NAME)


def _become(spec: ModelSpec, port: int) -> None:
    sys.argv[1:] = [*flags_of(spec), "--host", "127.0.0.1", "--port", str(port), *_quiet()]
    if spec.chat_template_path:
        sys.argv += ["--chat-template", str(spec.chat_template_path)]
    runpy.run_module(SERVER, run_name="__main__", alter_sys=True)


def _quiet() -> list[str]:
    """It says nothing of each request, as our engine says nothing."""
    return ["--disable-uvicorn-access-log", "--uvicorn-log-level", "warning", "--disable-log-stats"]


def flags_of(spec: ModelSpec) -> list[str]:
    """What a worker starts the model's engine with, as flags of vLLM's server."""
    slots = load_engine(spec).slots  # sets vLLM's environment too, before its import
    from vllm import AsyncEngineArgs  # noqa: PLC0415 - see above

    from workers.engine.vllm_options import engine_args  # noqa: PLC0415 - see above

    chosen = engine_args(spec, slots)
    default = AsyncEngineArgs(model=chosen.model)
    flags = ["--model", chosen.model]
    for field in dataclasses.fields(chosen):
        value = getattr(chosen, field.name)
        if value != getattr(default, field.name):
            flags += _flag(field.name.replace("_", "-"), value)
    return flags


def _flag(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, dict) or dataclasses.is_dataclass(value):
        return [f"--{name}", orjson.dumps(value).decode()]
    if isinstance(value, list):
        return [f"--{name}", *map(str, value)]
    return [f"--{name}", str(value)]


if __name__ == "__main__":
    _become(catalogue()[sys.argv[1]], int(sys.argv[2]))
