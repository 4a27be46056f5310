"""Jobs in the words of the surface that they came through."""

from decimal import Decimal

import pytest

from app.jobs.log import Output
from app.jobs.states import Status
from app.jobs.tables import Surface
from app.surfaces import native, telling
from config.queues import Tier, Window
from tests.openai_contract import CHAT, COMPLETION, RESPONSE, faults
from tests.unit.openai.logs import JOB_ID, make_job

DIGITS = JOB_ID.removeprefix("job_")
BATCH_ID = "batch_0123456789abcdef0123456789abcdef"


def job_of(surface=Surface.JOBS, status=Status.COMPLETED, model="m", **fields):
    job = make_job(
        status,
        **{
            "surface": surface,
            "kind": "generation",
            "tier": Tier.BATCH,
            "completion_window": Window.ONE_DAY,
            "price_factor": Decimal("0.5"),
            "attempt": 1,
            "preemptions": 0,
            **fields,
        },
    )
    job.model = model
    return job


@pytest.mark.parametrize(
    ("surface", "name", "kind"),
    [
        (Surface.JOBS, JOB_ID, "job"),
        (Surface.RESPONSES, f"resp_{DIGITS}", "response"),
        (Surface.CHAT, f"chatcmpl-{DIGITS}", "chat.completion"),
        (Surface.COMPLETIONS, f"cmpl-{DIGITS}", "text_completion"),
    ],
)
def test_a_job_is_an_object_of_its_surface_by_its_name_there(surface, name, kind):
    job = job_of(surface)
    said = telling.describe(job, Output("Aye.", (1, 2)))
    assert (said["id"], said["object"]) == (name, kind)
    assert "Aye." in str(said)


@pytest.mark.parametrize(
    ("surface", "contract"),
    [
        (Surface.RESPONSES, RESPONSE),
        (Surface.CHAT, CHAT),
        (Surface.COMPLETIONS, COMPLETION),
    ],
)
@pytest.mark.parametrize("status", [Status.COMPLETED, Status.INCOMPLETE, Status.CANCELLED])
def test_whatever_there_is_of_it_keeps_to_openais_contract(surface, contract, status):
    assert not faults(contract, telling.describe(job_of(surface, status), Output("Aye", (1,))))


@pytest.mark.parametrize("surface", list(Surface))
def test_every_surface_is_told_of(surface):
    job = job_of(surface)
    assert telling.describe(job, Output("Aye."))["id"].endswith(job.id.removeprefix("job_"))


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (Status.COMPLETED, None, 200),
        (Status.INCOMPLETE, None, 200),
        (Status.CANCELLED, None, 200),
        (Status.FAILED, "engine_error", 500),
        (Status.EXPIRED, "expired", 500),
    ],
)
def test_a_job_without_an_answer_has_an_error_and_its_status(status, error, code):
    job = job_of(status=status)
    failed = telling.failure(job)
    assert (failed and failed["code"], telling.status_code(job)) == (error, code)


def test_a_prompt_that_the_model_refuses_is_the_clients_fault():
    job = job_of(status=Status.FAILED, error_code="invalid_prompt", error_message="No.")
    assert telling.failure(job) == {
        "message": "No.",
        "type": "invalid_request_error",
        "code": "invalid_prompt",
        "param": None,
    }
    assert telling.status_code(job) == 400


def test_a_line_says_where_it_stands_and_what_it_cost():
    job = job_of(model="simulated", batch_id=BATCH_ID, line=7, custom_id="a")
    said = native.describe(job, Output("Aye.", (1, 2)))
    assert said["batch"] == {"id": BATCH_ID, "line": 7, "custom_id": "a"}
    # Half of 4 tokens at 0.10, 3 cached ones at 0.05 and 9 at 0.40 a million.
    assert said["cost"] == {"amount": "0.000002075", "currency": "USD"}


def test_what_belongs_to_no_batch_and_has_no_price_says_so():
    said = native.describe(job_of(webhook_url="https://example.com/"))
    assert (said["batch"], said["cost"], said["webhook_url"]) == (None, None, "https://example.com/")


def test_a_job_that_made_nothing_cost_nothing():
    job = job_of(model="simulated", input_tokens=0, cached_tokens=0, output_tokens=0)
    assert native.describe(job)["cost"] == {"amount": "0", "currency": "USD"}


def test_a_running_job_costs_what_it_has_made_so_far():
    job = job_of(model="simulated", status=Status.IN_PROGRESS, output_tokens=0)
    said = native.describe(job, Output("Aye.", (1,) * 100))
    assert said["usage"]["output_tokens"] == 100
    assert Decimal(said["cost"]["amount"]) == Decimal("0.5") * Decimal("40.55") / 1_000_000
