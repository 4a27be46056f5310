"""What a completion may ask for: every parameter of OpenAI's becomes part of a job or is refused by name."""

import pytest

from app.api.bodies import parse
from app.api.errors import BodyInvalid
from app.jobs import requests
from app.jobs.errors import RequestInvalid
from app.openai.completions import body as completions
from app.openai.completions.body import CreateCompletion
from app.openai.errors import Unsupported
from app.openai.sampling import MAX_CHOICES
from config.queues import Tier


def read(**body):
    return parse(CreateCompletion, {"model": "m", "prompt": "Once", **body})


def ask(**body):
    """The first of its jobs."""
    return completions.to_requests(read(**body))[0]


@pytest.mark.parametrize(
    ("name", "value", "param"),
    [
        ("best_of", 2, "best_of"),
        ("best_of", 0, "best_of"),
        ("suffix", "the end", "suffix"),
        ("prompt", [1, 2], "prompt"),
        ("prompt", [[1, 2], [3]], "prompt"),
        ("prompt", ["Once", 1], "prompt"),
        ("service_tier", "priority", "service_tier"),
        ("stream_options", {"include_obfuscation": True}, "stream_options.include_obfuscation"),
    ],
)
def test_what_openai_knows_and_we_do_not_serve_is_refused_by_name(name, value, param):
    with pytest.raises(Unsupported) as error:
        ask(**{name: value})
    assert error.value.param == param


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("best_of", 1),
        ("suffix", ""),
        ("user", "someone"),
        ("store", False),
        ("echo", True),
        ("prompt", ["Once"]),
    ],
)
def test_what_changes_nothing_of_the_job_is_accepted(name, value):
    assert ask(**{name: value}) == ask()


SERVED = {*CreateCompletion.model_fields, *CreateCompletion.UNSUPPORTED} - {"model", "prompt"}


@pytest.mark.parametrize("name", sorted(SERVED))
def test_null_is_every_parameters_default(name):
    assert ask(**{name: None}) == ask()


def test_every_parameter_of_openai_is_known():
    from openai.types import completion_create_params

    theirs = completion_create_params.CompletionCreateParamsBase.__annotations__
    assert not set(theirs) - {*CreateCompletion.UNSUPPORTED, *CreateCompletion.model_fields}
    assert not CreateCompletion.UNSUPPORTED.keys() & CreateCompletion.model_fields.keys()


@pytest.mark.parametrize("name", ["messages", "tools", "response_format", "reasoning_effort", "input"])
def test_what_only_other_calls_know_is_unknown(name):
    with pytest.raises(BodyInvalid, match=f"Unknown parameter: '{name}'"):
        ask(**{name: []})


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("prompt", ["x"] * MAX_CHOICES, ["x"] * (MAX_CHOICES + 1)),
        ("prompt", ["x"], []),
        ("prompt", "x", None),
        ("n", MAX_CHOICES, MAX_CHOICES + 1),
        ("n", 1, 0),
        ("logprobs", 5, 6),
        ("logprobs", 0, -1),
        ("max_tokens", 1, 0),
        ("max_tokens", 1_000_000, 1_000_001),
        ("temperature", 2, 2.01),
        ("top_p", 0.01, 0),
        ("stop", ["x"] * 16, ["x"] * 17),
        ("seed", 2**63 - 1, 2**63),
        ("user", "u" * 256, "u" * 257),
    ],
)
def test_a_limit_holds_at_its_edge(field, good, bad):
    ask(**{field: good})
    with pytest.raises(BodyInvalid) as error:
        ask(**{field: bad})
    assert error.value.param == field


@pytest.mark.parametrize(("n", "prompts"), [(2, 4), (4, 2), (8, 1)])
def test_choices_of_all_prompts_together_have_one_limit(n, prompts):
    assert len(completions.to_requests(read(n=n, prompt=["x"] * prompts))) == MAX_CHOICES
    with pytest.raises(BodyInvalid) as error:
        read(n=n, prompt=["x"] * (prompts + 1))
    assert error.value.param == "n"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["x", ""]}, "prompt"),
        ({"prompt": "x" * (requests.MAX_INPUT_CHARS + 1)}, "prompt"),
        ({"min_tokens": 17}, "min_tokens"),
        ({"max_tokens": 3, "min_tokens": 4}, "min_tokens"),
        ({"metadata": {"tier": "express"}}, "metadata.tier"),
    ],
)
def test_what_does_not_go_together_is_refused_in_a_completions_own_words(body, param):
    with pytest.raises(RequestInvalid) as error:
        ask(**body)
    assert error.value.param == param
    assert "output_tokens" not in str(error.value)


def test_echo_has_no_logprobs():
    with pytest.raises(BodyInvalid) as error:
        read(echo=True, logprobs=0)
    assert error.value.param == "echo"


def test_a_prompt_is_read_as_it_stands_and_sixteen_tokens_follow():
    made = ask()
    assert (made.input, made.prompt_format, made.max_output_tokens) == ("Once", "raw", 16)
    assert made.prompt.raw == "Once"
    assert ask(logprobs=3, service_tier="flex").logprobs == 3
    assert ask(service_tier="flex").tier is Tier.BATCH


def test_every_prompt_has_its_choices_with_the_same_seeds():
    made = completions.to_requests(read(prompt=["a", "b"], n=2, seed=5))
    assert [(one.input, one.seed) for one in made] == [("a", 5), ("a", 6), ("b", 5), ("b", 6)]


def test_what_is_kept_of_a_choice_tells_calls_apart():
    assert completions.echo(read()) == {"n": 1, "index": 0, "echo": False}
    assert completions.echo(read(n=2, echo=True, user="u"), 1) == {
        "n": 2,
        "index": 1,
        "echo": True,
        "user": "u",
    }
