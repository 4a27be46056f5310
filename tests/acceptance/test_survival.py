"""What users are promised when something dies in the middle, on the simulated engine."""

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.eventually import eventually

STORY = {"model": "faulty", "max_output_tokens": 400, "input": "[[step_ms=10]] Tell me a story."}


def test_a_worker_killed_again_and_again_costs_no_token(stack):
    stack.start("gpu")
    stack.wait_for_workers("faulty", 1)
    undisturbed = stack.ended(stack.submit(**STORY, temperature=0))["output"]["text"]
    job_id = stack.submit(**STORY, temperature=0)
    following = stack.follow(job_id)
    for _ in range(3):
        shown = len(following.seen.text)
        eventually(lambda shown=shown: len(following.seen.text) > shown + 100, 30, stack.tail())
        stack.kill("gpu")
        stack.start("gpu")
    seen = following.ended()
    assert seen.text == undisturbed
    assert seen.rewinds == []
    job = stack.job(job_id)
    assert job["attempt"] == 4
    assert job["usage"]["output_tokens"] == 400


@pytest.mark.slow
def test_at_temperature_one_no_follower_sees_what_the_output_contradicts_but_through_a_rewind(stack):
    """Twenty streams while two workers are killed ten times."""
    for name in ("gpu1", "gpu2"):
        stack.start(name)
    stack.wait_for_workers("faulty", 2)
    jobs = [stack.submit(**STORY, temperature=1) for _ in range(16)]
    following = [stack.follow(job_id) for job_id in jobs]
    for turn in range(10):
        shown = sum(len(follower.seen.text) for follower in following)
        if all(follower.seen.cursor and follower._is_over() for follower in following):
            jobs.append(stack.submit(**STORY, temperature=1))
            following.append(stack.follow(jobs[-1]))
        eventually(
            lambda shown=shown: sum(len(follower.seen.text) for follower in following) > shown + 200,
            60,
            stack.tail(),
        )
        name = f"gpu{turn % 2 + 1}"
        stack.kill(name)
        stack.start(name)
    for job_id, follower in zip(jobs, following, strict=True):
        seen = follower.ended(180)
        job = stack.job(job_id)
        assert job["status"] == "incomplete", job
        assert seen.text == job["output"]["text"]
        assert job["usage"]["output_tokens"] == 400


def test_a_poison_job_fails_with_a_clear_error_and_the_next_job_runs(stack):
    def keep_alive():
        if stack.processes["gpu"].poll() is not None:
            stack.start("gpu")
        return stack.job(job_id)["status"] == "failed"

    stack.start("gpu")
    stack.wait_for_workers("faulty", 1)
    job_id = stack.submit(model="faulty", input="[[crash_after=0]]")
    eventually(keep_alive, 90, stack.tail())
    job = stack.job(job_id)
    assert job["error"]["code"] == "worker_lost"
    assert "died 3 times in a row" in job["error"]["message"]
    if stack.processes["gpu"].poll() is not None:
        stack.start("gpu")
    assert stack.ended(stack.submit(model="faulty", max_output_tokens=5))["status"] == "incomplete"


def test_an_engine_that_dies_takes_its_process_down_after_handing_back(stack):
    stack.start("gpu")
    stack.wait_for_workers("faulty", 1)
    bystander = stack.submit(**STORY, temperature=0)
    following = stack.follow(bystander)
    eventually(lambda: following.seen.text)
    killer = stack.submit(model="faulty", input="[[engine_dies_after=0]]", max_output_tokens=10)
    assert stack.processes["gpu"].wait(20) == 1
    assert stack.job(bystander)["status"] == "queued"

    def keep_alive():
        if stack.processes["gpu"].poll() is not None:
            stack.start("gpu")
        return stack.job(killer)["status"] == "failed"

    eventually(keep_alive, 90, stack.tail())
    stack.processes["gpu"].wait(20)
    stack.start("gpu")
    seen = following.ended()
    assert seen.rewinds == []
    assert seen.text == stack.job(bystander)["output"]["text"]
    assert stack.job(bystander)["usage"]["output_tokens"] == 400


def test_a_deploy_loses_nothing(stack):
    """SIGTERM: interactive jobs finish within the grace, batch jobs go on elsewhere."""
    stack.start("gpu1", LONGHAUL_DRAIN_SECONDS="10")
    stack.wait_for_workers("faulty", 1)
    batch = stack.submit(**STORY, tier="batch", temperature=0)
    chat = stack.submit(model="faulty", max_output_tokens=200, input="[[step_ms=10]] Hello")
    followers = [stack.follow(job_id) for job_id in (batch, chat)]
    eventually(lambda: all(follower.seen.text for follower in followers))
    stack.start("gpu2")
    stack.wait_for_workers("faulty", 2)
    assert stack.kill("gpu1", signal.SIGTERM) == 0
    assert [follower.ended().rewinds for follower in followers] == [[], []]
    assert stack.job(chat)["attempt"] == 1
    assert stack.job(batch)["attempt"] == 2
    assert stack.job(batch)["usage"]["output_tokens"] == 400


def test_two_workers_share_the_work_and_one_may_leave(stack):
    stack.start("gpu1")
    stack.start("gpu2")
    stack.wait_for_workers("faulty", 2)
    jobs = [stack.submit(model="faulty", max_output_tokens=100, temperature=0) for _ in range(40)]
    eventually(lambda: sum(stack.job(job_id)["status"] == "in_progress" for job_id in jobs) > 8, 10)
    assert stack.kill("gpu1", signal.SIGTERM) == 0
    for job_id in jobs:
        assert stack.ended(job_id)["usage"]["output_tokens"] == 100
    stack.wait_for_workers("faulty", 1)


def test_a_job_for_a_model_that_nobody_serves_waits_and_says_so(stack):
    job_id = stack.submit(model="smollm2")
    job = stack.job(job_id)
    assert job["status"] == "queued"
    assert job["waiting"] == {"reason": "no_worker", "message": "No worker serves 'smollm2' right now."}


def test_a_web_process_that_stops_sends_its_followers_elsewhere(stack):
    stack.start("gpu")
    stack.wait_for_workers("faulty", 1)
    job_id = stack.submit(**STORY, temperature=0)
    following = stack.follow(job_id)
    eventually(lambda: following.seen.text)
    stack.kill("web", signal.SIGTERM)
    stack.start_web()
    seen = following.ended()
    assert following.connections > 1
    assert seen.text == stack.job(job_id)["output"]["text"]


def test_a_hundred_clients_with_one_key_share_a_job_and_its_stream(stack):
    stack.start("gpu")
    stack.wait_for_workers("faulty", 1)

    def submit(_):
        return stack.http.post("/v1/jobs", json=STORY, headers={"Idempotency-Key": "one"}).json()["id"]

    with ThreadPoolExecutor(10) as pool:
        (job_id,) = set(pool.map(submit, range(100)))
    assert stack.follow(job_id).ended().text == stack.job(job_id)["output"]["text"]
