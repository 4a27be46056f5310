"""Chooses the engine that a model asks for. An engine's module, and with it vLLM, is imported only when a
model needs it.
"""

from pathlib import Path
from pkgutil import resolve_name

from config.catalogue import ModelSpec
from config.settings import default_environment
from workers.engine import Engine

_ENGINES = {
    "simulated": "workers.engine.simulated:SimulatedEngine",
    "vllm": "workers.engine.vllm:VllmEngine",
}

# vLLM and its child processes read these themselves, some of them at import. An operator's own values win.
_VLLM_ENVIRONMENT = {
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # forking a process that has native threads can hang
    "VLLM_CONFIGURE_LOGGING": "0",  # our root logger takes the worker's lines; child processes show warnings
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; only the CPU build reads it
    "TOKENIZERS_PARALLELISM": "false",
}


def _vllm_environment(spec: ModelSpec) -> dict[str, str]:
    environment = dict(_VLLM_ENVIRONMENT)
    if Path(spec.weights_path).is_dir():
        environment["HF_HUB_OFFLINE"] = "1"
    if spec.engine_options.get("enforce_eager"):
        # Eager throughout: vLLM still compiles parts of its sampler, which holds up the first call that
        # wants logprobs or a temperature for 20 s on two CPU cores.
        environment["TORCHDYNAMO_DISABLE"] = "1"
    return environment


def load_engine(spec: ModelSpec, slots: int = 0) -> Engine:
    """The engine for `spec`, not yet started; `slots` of 0 means what the catalogue says."""
    if spec.engine == "vllm":
        default_environment(_vllm_environment(spec))
    engine: Engine = resolve_name(_ENGINES[spec.engine])(spec, slots or spec.slots)
    return engine
