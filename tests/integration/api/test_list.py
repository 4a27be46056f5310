"""`GET /v1/jobs`: filters and cursor pages."""

import time

import pytest

from tests.integration.api.batching import chat_line


@pytest.fixture
def five(alice):
    """Five jobs, oldest first."""
    return [alice.submit(input=str(n), metadata={"n": str(n % 2)}).json["id"] for n in range(5)]


def ids(page):
    return [job["id"] for job in page["data"]]


def test_a_page_has_the_shape_of_openais_lists(alice, five):
    page = alice.get("/v1/jobs").json
    assert page["object"] == "list"
    assert ids(page) == five[::-1]
    assert (page["first_id"], page["last_id"], page["has_more"]) == (five[4], five[0], False)


def test_an_empty_page_has_no_ends(alice):
    page = alice.get("/v1/jobs").json
    assert page == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_pages_follow_each_other_to_the_end(alice, five, order, limit):
    seen, after = [], ""
    while True:
        page = alice.get(f"/v1/jobs?limit={limit}&order={order}{after}").json
        seen += ids(page)
        if not page["has_more"]:
            break
        after = f"&after={page['last_id']}"
    assert seen == (five if order == "asc" else five[::-1])


def test_jobs_are_filtered(alice, five, work):
    work(five[0]).complete()
    alice.submit(model="simulated", tier="batch")
    assert ids(alice.get("/v1/jobs?status=completed").json) == [five[0]]
    assert len(ids(alice.get("/v1/jobs?tier=batch").json)) == 1
    assert len(ids(alice.get("/v1/jobs?model=faulty").json)) == 5
    assert ids(alice.get("/v1/jobs?metadata[n]=1").json) == [five[3], five[1]]
    assert ids(alice.get("/v1/jobs?metadata[n]=1&status=completed").json) == []


def test_jobs_are_filtered_by_when_they_were_made(alice, five):
    now = int(time.time())
    assert len(ids(alice.get(f"/v1/jobs?created_after={now - 60}").json)) == 5
    assert ids(alice.get(f"/v1/jobs?created_after={now + 60}").json) == []
    assert ids(alice.get("/v1/jobs?created_before=2020-01-01T00:00:00Z").json) == []


def test_another_account_sees_none_of_it(mallory, alice, five):
    assert ids(mallory.get("/v1/jobs").json) == []
    assert mallory.get(f"/v1/jobs?after={five[0]}").status_code == 404


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("order=up", "order"),
        ("status=done", "status"),
        ("created_after=yesterday", "created_after"),
        ("colour=red", "colour"),
        ("labels[x]=y", "labels[x]"),
    ],
)
def test_a_bad_filter_is_refused_by_name(alice, query, param):
    answer = alice.get(f"/v1/jobs?{query}")
    assert (answer.status_code, answer.json["error"]["param"]) == (400, param)


def test_a_batchs_lines_are_listed_line_by_line(alice, batches, five):
    batch = batches.validated(*(chat_line(name) for name in "abc"))
    page = alice.get(f"/v1/jobs?batch_id={batch['id']}&order=asc").json
    assert [job["batch"] for job in page["data"]] == [
        {"id": batch["id"], "line": number, "custom_id": name} for number, name in enumerate("abc", 1)
    ]
    assert all(job["batch"] is None for job in alice.get("/v1/jobs?tier=interactive").json["data"])


def test_a_batch_without_lines_has_none(alice, five):
    assert alice.get(f"/v1/jobs?batch_id=batch_{'0' * 32}").json["data"] == []
    answer = alice.get("/v1/jobs?batch_id=job_1")
    assert (answer.status_code, answer.json["error"]["param"]) == (400, "batch_id")
