"""What vLLM is started with for a model of the catalogue, and what its files say of its end. Part of the `vllm`
engine.
"""

from typing import Any, Final

from vllm import AsyncEngineArgs
from vllm.config import StructuredOutputsConfig

from config.catalogue import ModelSpec

PREFILL_PIECE_TOKENS: Final = 512


def engine_args(spec: ModelSpec, slots: int) -> Any:
    defaults: dict[str, Any] = {
        "model": spec.weights_path,
        "served_model_name": spec.name,
        "max_model_len": spec.context_tokens,
        "max_num_seqs": slots,
        # Among prompts that wait to be read; it frees no slot, `workers.slots` does.
        "scheduling_policy": "priority",
        "enable_prefix_caching": True,
        # A long prompt is read in pieces, between which every running stream gets its token.
        "long_prefill_token_threshold": min(PREFILL_PIECE_TOKENS, spec.long_prompt_tokens),
        # One backend for good: left open, the first request would choose it. Small models asked for JSON
        # can go on with spaces without end.
        "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
        "reasoning_parser": spec.reasoning_parser,  # so that a grammar begins where reasoning ends
    }
    options = defaults | spec.engine_options
    # As a dict, vLLM could not add the reasoning parser to it.
    structured = StructuredOutputsConfig(**options.pop("structured_outputs_config"))
    return AsyncEngineArgs(**options, structured_outputs_config=structured)


def eos_ids(model_config: Any, tokenizer: Any) -> frozenset[int]:
    named = model_config.try_get_generation_config().get("eos_token_id")
    ids = named if isinstance(named, list) else [named]
    return frozenset(token_id for token_id in [*ids, tokenizer.eos_token_id] if token_id is not None)
