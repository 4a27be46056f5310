"""What vLLM puts out for a call, as our deltas. Part of the `vllm` engine."""

from typing import Any

from workers.engine import Delta, FinishReason, PromptRejected, Sampling, TokenLogprob

_FINISHES = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


def delta_of(output: Any, sampling: Sampling) -> Delta:
    completion = output.outputs[0]
    finish = None
    if completion.finish_reason is not None:
        finish = _FINISHES.get(completion.finish_reason)
        if finish is None and sampling.is_structured:
            raise PromptRejected("The engine could not follow this JSON schema.")
        if finish is None:
            raise RuntimeError(f"vLLM ended a call with {completion.finish_reason!r}.")
    logprobs = _logprobs(completion, sampling.logprobs) if sampling.logprobs is not None else ()
    return Delta(completion.token_ids, logprobs, finish, output.num_cached_tokens)


def _logprobs(completion: Any, count: int) -> list[TokenLogprob]:
    """Given is a dict for each token: the chosen one and the `count` best, which may be one of them."""
    return [
        TokenLogprob(
            token_id,
            found[token_id].logprob,
            tuple(sorted(((i, p.logprob) for i, p in found.items()), key=lambda pair: -pair[1])[:count]),
        )
        for token_id, found in zip(completion.token_ids, completion.logprobs, strict=True)
    ]
