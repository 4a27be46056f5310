"""What every engine makes of a call before its model sees it: a plain prompt, and the room that is left; how it
names the functions' calls that come of it. It knows the contract and no engine.
"""

from collections.abc import Collection
from dataclasses import replace
from hashlib import blake2b

from app.jobs.prompts import Prompt
from workers.engine import Call, FinishReason, PromptRejected


def plain_prompt(prompt: Prompt | str) -> Prompt:
    """The prompt with contents as plain strings, as chat templates want them. Raises `PromptRejected` for
    contents that are not text.
    """
    if isinstance(prompt, str):
        return Prompt([{"role": "user", "content": prompt}])
    messages = [{**message, "content": _plain_text(message.get("content"))} for message in prompt.messages]
    return replace(prompt, messages=messages)


def tool_call_id(job_id: str, index: int) -> str:
    """The same in every attempt at a job."""
    return f"call_{blake2b(f'{job_id}:{index}'.encode(), digest_size=12).hexdigest()}"


def _plain_text(content: object) -> str:
    match content:
        case None:
            return ""
        case str():
            return content
        case list():
            return "\n".join(_part_text(part) for part in content)
    raise PromptRejected("A message's content is a string or a list of text parts.")


def _part_text(part: object) -> str:
    match part:
        case {"text": str(text)}:
            return text
    raise PromptRejected("This model reads text only: every part of a message's content needs a `text`.")


def tokens_left(call: Call, context_tokens: int) -> int:
    """How many tokens may still come. Raises `PromptRejected` where the prompt alone fills the context."""
    room = context_tokens - len(call.prompt_ids)
    if room <= 0:
        raise PromptRejected(
            f"The prompt has {len(call.prompt_ids)} tokens; with the output there may be {context_tokens}."
        )
    return max(0, min(call.sampling.max_tokens, room) - len(call.prior_ids))


def find_ending(call: Call, eos_ids: Collection[int], context_tokens: int) -> FinishReason | None:
    """How earlier attempts already ended this answer, if they did."""
    if call.prior_ids and call.prior_ids[-1] in eos_ids and not call.sampling.ignore_eos:
        return FinishReason.STOP
    return None if tokens_left(call, context_tokens) else FinishReason.LENGTH
