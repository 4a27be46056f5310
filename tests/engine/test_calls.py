"""What every engine makes of a call before its model sees it."""

import pytest

from workers.engine import Call, FinishReason, PromptRejected, Sampling
from workers.engine.calls import find_ending, tokens_left

EOS = 2


def make_call(prompt=10, prior=(), **sampling) -> Call:
    return Call("call", [7] * prompt, Sampling(**{"max_tokens": 20} | sampling), prior_ids=prior)


@pytest.mark.parametrize(
    ("prompt", "prior", "left"), [(10, 0, 20), (10, 5, 15), (10, 20, 0), (90, 0, 10), (90, 4, 6), (90, 12, 0)]
)
def test_what_is_left_is_bounded_by_max_tokens_and_the_context(prompt, prior, left):
    assert tokens_left(make_call(prompt, [7] * prior), context_tokens=100) == left


@pytest.mark.parametrize("prompt", [100, 101])
def test_a_prompt_needs_room_for_one_token(prompt):
    with pytest.raises(PromptRejected):
        tokens_left(make_call(prompt), context_tokens=100)


@pytest.mark.parametrize(
    ("call", "ending"),
    [
        (make_call(), None),
        (make_call(prior=[7, 7]), None),
        (make_call(prior=[7, EOS]), FinishReason.STOP),
        (make_call(prior=[7, EOS], ignore_eos=True), None),
        (make_call(prior=[7] * 20), FinishReason.LENGTH),
    ],
    ids=["nothing yet", "half way", "ended", "ended, but may not", "full"],
)
def test_an_answer_may_have_ended_before_it_is_resumed(call, ending):
    assert find_ending(call, {EOS}, context_tokens=100) is ending
