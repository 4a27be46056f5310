"""A batch whose processes are killed again and again, at random moments of all that becomes of it: each line is
there once, the counts add up, and what is paid is what was used.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import func, select

from app.batches import cancelling
from app.batches.states import BatchStatus
from app.batches.tables import Batch
from app.db import transaction
from app.files.storage import storage
from app.files.tables import StoredFile
from app.jobs.tables import Job, Usage
from config.catalogue import catalogue
from tests.acceptance.stack import Stack, running
from tests.eventually import eventually
from tests.integration.batches.lines import again, ask_for, chat

MODEL = "simulated"
LINES = 800  # these take a while to be checked and to be written
ODD_EVERY = 50  # each such line cannot be run
KILLS = {BatchStatus.VALIDATING: 7, BatchStatus.IN_PROGRESS: 6, BatchStatus.FINALIZING: 7}


class Mortals:
    """Batches processes, of which one leads: it is killed a random while after it began to."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.deaths = 0
        for number in range(3):
            self._start(f"batches{number}")
        self._wait_for_leader()

    def die(self, within_seconds: float) -> None:
        leader = self._wait_for_leader()
        threading.Event().wait(random.uniform(0, within_seconds))
        self._stack.kill(leader)
        self.deaths += 1
        self._start(leader)

    def _start(self, name: str) -> None:
        self._log(name).unlink(missing_ok=True)
        self._stack.start(name, LONGHAUL_LEADER_RETRY_SECONDS="0.1")

    def _wait_for_leader(self) -> str:
        leader: str = eventually(self._find_leader, 60, "no batches process leads")
        return leader

    def _find_leader(self) -> str | None:
        names = [name for name in self._stack.processes if name.startswith("batches")]
        return next((name for name in names if "batches.leads" in self._log(name).read_text()), None)

    def _log(self, name: str) -> Path:
        return self._stack.logs / f"{name}.log"


@pytest.fixture
def stack(clean: dict[str, str], make_key: Callable[..., str], tmp_path: Path) -> Iterator[Stack]:
    with running(clean, make_key(), tmp_path) as started:
        started.start("background")
        started.start("dispatcher")
        started.start("gpu", LONGHAUL_MODEL=MODEL)
        yield started


def lines(count: int) -> list[dict[str, Any]]:
    return [
        chat(number, **({"max_tokens": -1} if number % ODD_EVERY == 0 else {"max_tokens": 4}))
        for number in range(1, count + 1)
    ]


def content(file_id: str | None) -> list[dict[str, Any]]:
    with transaction() as session:
        file = session.get_one(StoredFile, file_id)
    return [orjson.loads(line) for line in b"".join(storage().read(file.digest)).decode().splitlines()]


def ended(batch: Batch, seconds: float = 90) -> Batch:
    found: Batch = eventually(lambda: (now := again(batch)).finished_at and now, seconds, f"{batch.id} ends")
    return found


def wait_for(batch: Batch, status: BatchStatus) -> None:
    """Until its time has come, or has passed."""
    order = [*KILLS, BatchStatus.COMPLETED]
    eventually(lambda: again(batch).status in order[order.index(status) :], 90, status)


def has_ended(batch: Batch, count: int) -> bool:
    """Whether that many lines have."""
    with transaction() as session:
        where = (Job.batch_id == batch.id, Job.finished_at.is_not(None))
        return (session.scalar(select(func.count()).where(*where)) or 0) >= count


def assert_whole(batch: Batch, count: int) -> None:
    """Each line once, in order, in one of two files; counts, usage and cost of exactly those."""
    answered, failed = content(batch.output_file_id), content(batch.error_file_id)
    for found in (answered, failed):
        numbers = [int(line["custom_id"].removeprefix("line-")) for line in found]
        assert numbers == sorted(numbers)
    seen = Counter(line["custom_id"] for line in [*answered, *failed])
    assert seen == Counter(f"line-{number}" for number in range(1, count + 1))
    assert (batch.total, batch.completed, batch.failed) == (count, len(answered), len(failed))
    used = ("input_tokens", "cached_tokens", "output_tokens")
    with transaction() as session:
        ids = select(Job.id).where(Job.batch_id == batch.id)
        sums = session.execute(
            select(*(func.sum(getattr(Usage, name)) for name in used)).where(Usage.job_id.in_(ids))
        ).one()
        finals = session.scalar(select(func.count()).where(Usage.job_id.in_(ids), Usage.is_final))
        assert finals == session.scalar(select(func.count()).where(Job.batch_id == batch.id))
    assert tuple(sums) == tuple(getattr(batch, name) for name in used)
    price = catalogue()[MODEL].price
    assert price is not None
    assert batch.cost == price.of(*(int(tokens) for tokens in sums)) / 2


def test_a_batch_outlives_its_processes(stack: Stack, make_account: Callable[..., Any]) -> None:
    mortals = Mortals(stack)
    batch = ask_for(make_account(), lines(LINES), on_invalid="skip")
    for status, kills in KILLS.items():
        for number in range(kills):
            wait_for(batch, status)
            mortals.die(within_seconds=0.5)
            if status is BatchStatus.IN_PROGRESS and number == 0:
                stack.kill("gpu")
                stack.start("gpu", LONGHAUL_MODEL=MODEL)
    batch = ended(batch)
    assert mortals.deaths == sum(KILLS.values())
    assert batch.status is BatchStatus.COMPLETED
    assert batch.failed == LINES // ODD_EVERY
    assert_whole(batch, LINES)
    with transaction() as session:
        assert session.scalar(select(func.count()).where(StoredFile.purpose == "batch_output")) == 2


def test_a_cancelled_batch_outlives_its_processes(stack: Stack, make_account: Callable[..., Any]) -> None:
    mortals = Mortals(stack)
    batch = ask_for(make_account(), lines(LINES), on_invalid="skip")
    eventually(lambda: has_ended(batch, 50), 90, stack.tail())
    with transaction() as session:
        cancelling.request(session, again(batch))
    for _ in range(2):
        mortals.die(within_seconds=0.3)
    batch = ended(batch)
    assert batch.status is BatchStatus.CANCELLED
    assert batch.failed > LINES // ODD_EVERY
    assert_whole(batch, LINES)
