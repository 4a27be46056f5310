"""What docs/batches.md says of endpoints, parameters, fields and limits is what the code does."""

import re
from pathlib import Path

import pytest
from openai.types import Batch as SdkBatch

from app.api.batches import shapes as batch_shapes
from app.batches import checking
from app.batches.creating import CreateBatch
from app.batches.states import BatchStatus
from app.jobs import requests
from app.surfaces.asking import ENDPOINTS
from config.queues import Window
from config.settings import Settings

PAGE = (Path(__file__).parent.parent.parent / "docs" / "batches.md").read_text()
LIMITS = {
    "lines of a batch": Settings.model_fields["max_batch_lines"].default,
    "bytes of a batch's file": Settings.model_fields["max_batch_bytes"].default,
    "bytes of a line": Settings.model_fields["max_line_bytes"].default,
    "characters of a `custom_id`": checking.MAX_CUSTOM_ID_CHARS,
    "pairs of metadata": requests.MAX_METADATA_PAIRS,
    "faults in `errors.data`": batch_shapes.FAULTS_SHOWN,
    "faults in `errors.data` of a list": batch_shapes.FAULTS_SHOWN_IN_LISTS,
}


def section(heading):
    return re.split(r"^## ", PAGE.partition(f"## {heading}\n")[2], flags=re.MULTILINE)[0]


def names_in(heading):
    """What stands in backticks in the first column below a heading."""
    cells = re.findall(r"^\| (`[^|]+`) \|", section(heading), re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_every_route_of_batches_is_in_the_table():
    from app.api import create_app
    from app.api.openapi import document

    served = [
        f"{method.upper()} {path}"
        for path, methods in document(create_app())["paths"].items()
        for method in methods
        if path.startswith("/v1/batches")
    ]
    assert sorted(names_in("Endpoints")) == sorted(served)


def test_every_parameter_of_a_batch_is_in_the_table():
    assert sorted(names_in("What to send")) == sorted(CreateBatch.model_fields)


def test_every_field_that_is_not_openais_is_in_the_table():
    ours = set(batch_shapes.BatchView.model_fields) - set(SdkBatch.model_fields)
    assert ours <= set(names_in("What it says of itself"))


@pytest.mark.parametrize(
    "heading_and_words", [("Statuses", BatchStatus), ("What to send", (*ENDPOINTS, *Window))]
)
def test_every_status_endpoint_and_window_is_named(heading_and_words):
    heading, words = heading_and_words
    assert not [word for word in words if f"`{word}`" not in section(heading)]


def test_every_limit_is_that_of_the_code():
    said = dict(re.findall(r"^\| (.+) \| ([\d,]+) \|$", section("Limits"), re.MULTILINE))
    assert said == {name: f"{limit:,}" for name, limit in LIMITS.items()}
