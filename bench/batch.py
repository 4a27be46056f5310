"""`batch`: a file of requests through `/v1/batches`, from its upload to its last answer on this machine's disk.

On the simulated engine, 50,000 lines: how long until they are checked and in the line, how fast they go, how
long the files at the end take, and how much memory each process takes more than when idle. The engine is fast,
so that the platform is what limits.

With `--engine vllm`, 300 lines beside vLLM's own `run-batch`: the same file, model and engine arguments. Two
engines would compete for the machine, so they take turns: vLLM's, ours, vLLM's again, each started anew and
warmed up; the reference is the mean of its two turns. Both are timed from the file to the answers: ours from
before the upload to the download of the output file, with checking, the line and the database in between.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Final

from sqlalchemy import func, select

from app.db import transaction
from app.jobs.tables import Job
from bench import batch_reference
from bench.batch_client import Batches, Load, check, write_lines
from bench.batch_memory import Memory
from bench.batch_reference import run_reference
from bench.harness import Platform, platform
from bench.report import Aim, Figure, Report

MODEL: Final = "batch"
CATALOGUE: Final = f"""
[models.{MODEL}]
engine = "simulated"
context_tokens = 4096
slots = 256
default_output_tokens = 8
price = {{ input = 0.02, output = 0.04 }}

[models.{MODEL}.engine_options]
step_seconds = 0.002
prefill_tokens_per_second = 10_000_000
"""
SERVED: Final = "smollm2"
FULL: Final = Load(MODEL, lines=50_000, tokens=4)
QUICK: Final = Load(MODEL, lines=1_000, tokens=4)
WARM_UP: Final = Load(MODEL, lines=500, tokens=4, first=-500)
FULL_SERVED: Final = Load(SERVED, lines=300, tokens=96)
QUICK_SERVED: Final = Load(SERVED, lines=40, tokens=16)
SERVED_WARM_UP: Final = Load(SERVED, lines=32, tokens=8, first=-32)
ENQUEUE_AIM: Final = Aim("value", "<=", 20)
MEMORY_AIM: Final = Aim("value", "<=", 50)
RATE_AIM: Final = Aim("ratio", ">=", 1.0)
MEGABYTE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Taken:
    """Seconds of one batch; `whole` is from before the upload to after the download."""

    upload: float
    enqueue: float  # from the answer of the API to `in_progress`
    run: float  # to the end of the last line
    finalize: float  # to `completed`
    whole: float
    batch: dict[str, Any]
    tokens: int  # of the answers, as these say


def measure(report: Report, *, quick: bool, engine: str = "simulated") -> None:
    with tempfile.TemporaryDirectory(prefix="longhaul-bench-") as folder, platform(CATALOGUE) as started:
        if engine == "vllm":
            turns = 1 if quick else 2
            _measure_served(report, started, Path(folder), QUICK_SERVED if quick else FULL_SERVED, turns)
        else:
            _measure_simulated(report, started, Path(folder), QUICK if quick else FULL)


def _measure_simulated(report: Report, started: Platform, folder: Path, load: Load) -> None:
    processes = {
        "web": started.start_web(),
        "batches": started.start_line("batches"),
        "background": started.start_background(),
        "dispatcher": started.start_dispatcher(),
    }
    started.start_worker(MODEL)
    _run(started, folder, WARM_UP)  # what is loaded at first use is no growth
    with Memory(processes) as memory:
        taken = _run(started, folder, load)
    lines = f"{load.lines:,} lines"
    report.add(
        Figure(f"{lines}: checked and in the line", taken.enqueue, "s", aim=ENQUEUE_AIM),
        Figure(f"{lines}: a second while checked", load.lines / taken.enqueue, "/s"),
        Figure("lines a second, run", load.lines / taken.run, "/s"),
        Figure("files written once the last line ended", taken.finalize, "s"),
        *(
            Figure(f"{name}: memory over idle", (memory.peak[name] - idle) / MEGABYTE, "MB", aim=MEMORY_AIM)
            for name, idle in memory.idle.items()
        ),
    )
    sizes = (f"{name} {memory.peak[name] / MEGABYTE:.0f} MB" for name in processes)
    report.note(f"Upload {taken.upload:.1f} s; from upload to the answers {taken.whole:.1f} s.")
    report.note(f"Memory at the peak: {', '.join(sizes)}.")


def _measure_served(report: Report, started: Platform, folder: Path, load: Load, turns: int) -> None:
    write_lines(folder / batch_reference.INPUT, load)
    write_lines(folder / batch_reference.WARM_UP, SERVED_WARM_UP)
    theirs = [_reference(started, folder, load)]
    started.start_web()
    started.start_line("batches")
    started.start_background()
    started.start_dispatcher()
    started.start_worker(load.model)
    _run(started, folder, SERVED_WARM_UP)
    ours = _run(started, folder, load)
    started.stop_all()
    theirs += [_reference(started, folder, load) for _ in range(turns - 1)]
    report.add(
        Figure(
            f"{load.lines} lines: output tokens a second",
            ours.tokens / ours.whole,
            "/s",
            reference=mean(tokens / seconds for seconds, tokens in theirs),
            aim=RATE_AIM,
        ),
        Figure("from the file to the answers", ours.whole, "s", mean(seconds for seconds, _ in theirs)),
    )
    said = "; ".join(f"{tokens / seconds:.1f} tokens/s, {tokens} tokens" for seconds, tokens in theirs)
    report.note(f"vLLM's run-batch, its turns: {said}. Ours: {ours.tokens} tokens.")
    report.note(
        f"Of ours: upload {ours.upload:.2f} s, checked {ours.enqueue:.2f} s, run {ours.run:.2f} s, "
        f"files {ours.finalize:.2f} s."
    )


def _reference(started: Platform, folder: Path, load: Load) -> tuple[float, int]:
    """Seconds and output tokens."""
    seconds, answers = run_reference(started, load.model, folder)
    return seconds, check(load, answers)


def _run(started: Platform, folder: Path, load: Load) -> Taken:
    """One batch to its end; its answers are checked."""
    lines, answers = folder / "lines.jsonl", folder / "answers.jsonl"
    write_lines(lines, load)
    with Batches(started.url, started.key) as client:
        began = time.monotonic()
        file_id = client.upload(lines)
        uploaded = time.monotonic()
        batch_id = client.create(file_id)
        accepted = time.monotonic()
        in_line = client.await_status(batch_id, "in_progress", "finalizing", "completed")
        client.await_status(batch_id, "completed")
        completed, completed_at = time.monotonic(), time.time()
        last_ended = completed - (completed_at - _last_ended_at(batch_id))
        batch = client.get(batch_id)
        client.download(batch["output_file_id"], answers)
        whole = time.monotonic() - began
    with answers.open("rb") as file:
        tokens = check(load, file)
    return Taken(
        upload=uploaded - began,
        enqueue=in_line - accepted,
        run=last_ended - in_line,
        finalize=completed - last_ended,
        whole=whole,
        batch=batch,
        tokens=tokens,
    )


def _last_ended_at(batch_id: str) -> float:
    """Unix seconds."""
    with transaction() as session:
        at = session.scalar(select(func.max(Job.finished_at)).where(Job.batch_id == batch_id))
    assert at is not None
    return float(at.timestamp())
