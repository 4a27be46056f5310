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


def request_line(number, prompt):
    body = {"model": "faulty", "messages": [{"role": "user", "content": prompt}], "max_tokens": 50}
    request = {"custom_id": f"line {number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(request) + "\n"


def test_a_batch_from_its_file_to_its_answers(longhaul, tmp_path):
    longhaul.stack.start("batches")
    file, answers = tmp_path / "requests.jsonl", tmp_path / "answers.jsonl"
    lines = [request_line(1, "[[say=One.]]"), "nonsense\n", request_line(3, "[[reject]]")]
    file.write_text("".join([*lines, request_line(4, "[[say=Four.]]")]))

    estimated = longhaul("batch", "estimate", str(file))
    assert estimated.returncode == 2
    assert "4, 1 of them cannot be run" in estimated.stdout
    assert estimated.stderr.startswith("line 2, column 1: ")

    ran = longhaul("batch", "submit", str(file), "--on-invalid", "skip", "--watch")
    batch_id = ran.stdout.strip()
    assert ran.returncode == 2, ran.stderr
    assert "4 lines, 2 completed, 2 failed" in ran.stderr
    assert f"longhaul batch retry {batch_id}" in ran.stderr
    assert longhaul("batch", "output", batch_id, "--to", str(answers)).returncode == 0
    said = [json.loads(line) for line in answers.read_text().splitlines()]
    assert [(line["custom_id"], text_of(line)) for line in said] == [("line 1", "One."), ("line 4", "Four.")]
    assert longhaul("batch", "errors", batch_id).stdout.count("\n") == 2
    listed = longhaul("batch", "lines", batch_id).stdout.splitlines()[1:]
    assert [line.split("\t")[2] for line in listed] == ["completed", "invalid", "failed", "completed"]
    again = longhaul("batch", "retry", batch_id, "--watch", "--json")
    assert (again.returncode, json.loads(again.stdout)["request_counts"]["total"]) == (1, 1)


def text_of(line):
    return line["response"]["body"]["choices"][0]["message"]["content"]


def test_a_batch_is_cancelled_line_by_line_or_whole_and_keeps_what_it_has(longhaul, tmp_path):
    longhaul.stack.start("batches")
    file = tmp_path / "requests.jsonl"
    file.write_text("".join(request_line(number, "[[say=Hi.]][[stall_after=1]]") for number in range(1, 4)))
    batch_id = longhaul("batch", "submit", str(file)).stdout.strip()
    eventually(lambda: longhaul.stack.http.get(f"/v1/batches/{batch_id}").json()["running"] == 3, 20)
    assert longhaul("batch", "cancel", batch_id, "--line", "3").stdout.endswith(" is cancelled.\n")
    assert "3 lines" in longhaul("batch", "cancel", batch_id).stdout
    watched = longhaul("batch", "watch", batch_id)
    assert watched.returncode == 1
    assert "cancelled · 3 lines, 3 failed" in watched.stderr


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
