"""What docs/anthropic.md says of endpoints and parameters is what the code does."""

import re

import pytest

from app.anthropic.body import UNSUPPORTED, CreateMessage
from app.api.batches import messages as message_batches
from app.api.openapi import routes
from config.settings import settings
from tests.conftest import ROOT

DOCS = (ROOT / "docs" / "anthropic.md").read_text()
OURS = {"tier", "completion_window"}


def rows(heading):
    _, _, rest = DOCS.partition(f"\n## {heading}\n")
    return [
        line.split("|")[1:-1] for line in re.split(r"\n## ", rest)[0].splitlines() if line.startswith("| `")
    ]


def test_every_parameter_is_in_the_table_with_what_becomes_of_it():
    verdicts = {}
    for names, verdict, _ in rows("Parameters of a message"):
        verdicts |= {name.split(".")[0]: verdict.strip() for name in re.findall(r"`([\w.]+)`", names)}
    assert set(verdicts) == set(CreateMessage.model_fields) - OURS | set(UNSUPPORTED)
    assert {name for name, verdict in verdicts.items() if verdict == "refused"} >= set(UNSUPPORTED)


@pytest.fixture
def app():
    from flask import Flask

    made = Flask(__name__, static_folder=None)
    made.register_blueprint(message_batches.blueprint)
    return made


def test_every_endpoint_is_in_the_table(app):
    named = {
        re.sub(r"\{\w+\}", "{}", name)
        for row in rows("Endpoints")
        for name in re.findall(r"`([A-Z]+ [^`]+)`", row[0])
    }
    served = {
        f"{method} {re.sub(r'{.+?}', '{}', path)}"
        for path, method, endpoint, _ in routes(app)
        if endpoint.startswith("message_batches")
    }
    assert named == served


def test_limits_are_those_of_the_settings():
    assert f"({settings().max_batch_lines:,})" in DOCS
    assert f"({settings().max_message_batch_bytes >> 20} MB)" in DOCS
