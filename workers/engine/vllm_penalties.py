"""Presence, frequency and repetition penalties of an answer that goes on after `prior_ids`. vLLM counts output
tokens, and takes what earlier attempts put out for prompt. So such a call turns vLLM's own penalties off and
names them in its `extra_args`; a logits processor in the engine process applies them with vLLM's own function,
at the same place in its pipeline, over the true division of prompt and output. Part of the `vllm` engine.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from vllm.model_executor.layers.utils import apply_penalties
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as RunnerV2LogitsProcessor

from workers.engine import Call

_CONTINUED = "longhaul_continued"


def penalties_of(call: Call) -> dict[str, Any]:
    sampling = call.sampling
    named = {
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
    }
    if not call.prior_ids or not (sampling.presence_penalty or sampling.frequency_penalty):
        return named
    return {"extra_args": {_CONTINUED: named | {"prompt_tokens": len(call.prompt_ids)}}}


def _penalise(
    continued: dict[str, Any], prompt_ids: Sequence[int], output_ids: Sequence[int], logits: Any
) -> Any:
    """Apply `continued` to one row of logits, in place. `prompt_ids` and `output_ids` divide as vLLM does."""
    ids = torch.tensor([[*prompt_ids, *output_ids]], device=logits.device)
    first = continued["prompt_tokens"]
    scales = [
        torch.tensor([continued[name]], device=logits.device)
        for name in ("presence_penalty", "frequency_penalty", "repetition_penalty")
    ]
    apply_penalties(logits.unsqueeze(0), ids[:, :first], ids[:, first:], *scales)
    return logits


class ContinuedPenalties(AdapterLogitsProcessor):  # type: ignore[misc] # vllm is untyped here
    """For vLLM's first model runner; loaded by name in the engine process."""

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: Any) -> Any:
        continued = (params.extra_args or {}).get(_CONTINUED)
        return partial(_penalise, continued) if continued else None


class RunnerV2ContinuedPenalties(RunnerV2LogitsProcessor):  # type: ignore[misc] # vllm is untyped here
    """For vLLM's second model runner, which keeps all token ids of a request by its slot."""

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        super().__init__(vllm_config, req_states)
        self._token_ids = req_states.all_token_ids
        self._continued: dict[int, dict[str, Any]] = {}

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        self._continued.pop(req_idx, None)
        continued = (sampling_params.extra_args or {}).get(_CONTINUED)
        if continued:
            self._continued[req_idx] = continued
        return bool(continued)

    def apply(self, logits: Any, ctx: Any) -> Any:
        for row, slot in enumerate(ctx.idx_mapping_np.tolist()):
            if continued := self._continued.get(slot):
                seen = self._token_ids.gpu[slot, : int(ctx.seq_lens_upper_bound_np[row])]
                _penalise(continued, seen.tolist(), (), logits[row])
        return logits


def processor_name(*, is_runner_v2: bool) -> str:
    """What vLLM loads the processor by; its two model runners take different kinds."""
    processor = RunnerV2ContinuedPenalties if is_runner_v2 else ContinuedPenalties
    return f"{__name__}:{processor.__name__}"
