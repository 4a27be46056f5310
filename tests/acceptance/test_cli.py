"""The `longhaul` command against a running stack, as a shell sees it: output, errors, exit status."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventually import eventually

PROGRAM = Path(sys.executable).parent / "longhaul"


@pytest.fixture
def longhaul(stack):
    stack.start("gpu")
    stack.wait_for_workers("faulty", 1)

    def run(*args, key=stack.key, url=stack.url):
        environment = {**stack.environment, "LONGHAUL_URL": url, "LONGHAUL_API_KEY": key}
        return subprocess.run(
            [PROGRAM, *args], env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    run.stack = stack
    return run


def test_a_job_from_submission_to_its_end(longhaul):
    said = longhaul("submit", "[[say=Ahoy there!]]", "--model", "faulty")
    assert (said.stdout.strip(), said.returncode) == ("Ahoy there!", 0)

    cut = longhaul("submit", "Hello", "--model", "faulty", "--max-output-tokens", "5")
    assert cut.returncode == 2
    assert "\x1b" not in cut.stdout

    job_id = longhaul("submit", "[[say=Again]]", "--model", "faulty", "--detach").stdout.strip()
    assert longhaul("watch", job_id).stdout.strip() == "Again"
    shown = json.loads(longhaul("get", job_id, "--json").stdout)
    assert (shown["id"], shown["status"]) == (job_id, "completed")
    assert job_id in longhaul("jobs", "--status", "completed").stdout


def test_a_cancelled_job_keeps_its_partial_and_a_watcher_exits_1(longhaul):
    job_id = longhaul(
        "submit", "Go on.", "--model", "faulty", "--max-output-tokens", "4000", "--detach"
    ).stdout.strip()
    environment = {**longhaul.stack.environment, "LONGHAUL_URL": longhaul.stack.url}
    watcher = subprocess.Popen(
        [PROGRAM, "watch", job_id, "--key", longhaul.stack.key],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    eventually(lambda: longhaul.stack.job(job_id)["output"]["text"])
    assert longhaul("cancel", job_id).returncode == 0
    text, _ = watcher.communicate(timeout=20)
    assert watcher.returncode == 1
    assert text.decode().strip() == longhaul.stack.job(job_id)["output"]["text"].strip()


def test_ctrl_c_leaves_the_job_running_and_says_how_to_go_on(longhaul):
    environment = {**longhaul.stack.environment, "LONGHAUL_URL": longhaul.stack.url}
    submitter = subprocess.Popen(
        [
            PROGRAM,
            "submit",
            "Go on.",
            "--model",
            "faulty",
            "--max-output-tokens",
            "1500",
            "--key",
            longhaul.stack.key,
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    (job,) = eventually(lambda: longhaul.stack.http.get("/v1/jobs?status=in_progress").json()["data"])
    submitter.send_signal(signal.SIGINT)
    _, errors = submitter.communicate(timeout=20)
    assert f"longhaul watch {job['id']}" in errors.decode()
    assert longhaul.stack.ended(job["id"])["status"] == "incomplete"


def test_keys_are_shown_once_and_can_be_revoked(longhaul):
    made = longhaul("keys", "create", "laptop", "--account", "acme")
    secret = made.stdout.strip()
    assert longhaul("jobs", key=secret).returncode == 0
    listed = longhaul("keys", "list").stdout
    assert secret not in listed
    key_id = next(line.split()[0] for line in listed.splitlines() if "laptop" in line)
    assert longhaul("keys", "revoke", key_id).returncode == 0
    eventually(lambda: longhaul("jobs", key=secret).returncode == 1, 15)


FAILURES = [
    (("get", "job_x"), {}, "No job with id"),
    (("submit", "Hi", "--model", "nonesuch"), {}, "does not exist"),
    (("jobs",), {"key": "wrong"}, "key"),
    (("jobs",), {"url": "http://127.0.0.1:9"}, "No Longhaul answers"),
]


def test_a_failure_is_one_plain_sentence(longhaul):
    for args, options, sentence in FAILURES:
        failed = longhaul(*args, **options)
        assert failed.returncode == 1
        assert sentence in failed.stderr
        assert "Traceback" not in failed.stderr
