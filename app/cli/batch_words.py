"""A batch in words: what it is, what became of it, what is wrong with its lines, what it would cost. Pure."""

import math
from collections.abc import Iterator
from typing import Any, Final

from app.batches.states import BatchStatus
from app.cli.jobs import local_time
from app.line.wording import in_words

ALL_COMPLETED, NONE_COMPLETED, SOME_COMPLETED = 0, 1, 2
COLUMNS: Final = ("id", "status", "lines", "completed", "failed", "cost", "window", "created", "endpoint")
LINE_COLUMNS: Final = ("line", "custom_id", "status", "job", "tokens", "why")

Batch = dict[str, Any]  # as the API says it


def ended_lines(batch: Batch) -> int:
    counts = batch["request_counts"]
    ended: int = counts["completed"] + counts["failed"]
    return ended


def exit_status(batch: Batch) -> int:
    """Of watching a batch to its end."""
    counts = batch["request_counts"]
    if batch["status"] == BatchStatus.COMPLETED and not counts["failed"]:
        return ALL_COMPLETED
    return SOME_COMPLETED if counts["completed"] else NONE_COMPLETED


def checked_status(batch: Batch) -> int:
    """Of checking a file."""
    if batch["status"] != BatchStatus.COMPLETED:
        return NONE_COMPLETED
    return SOME_COMPLETED if faults_total(batch) else ALL_COMPLETED


def row(batch: Batch) -> tuple[str, ...]:
    counts = batch["request_counts"]
    return (
        batch["id"],
        _status(batch),
        *(f"{counts[name]:,}" for name in ("total", "completed", "failed")),
        money(batch, batch["cost"]) or "-",
        batch["completion_window"],
        local_time(batch["created_at"]),
        batch["endpoint"],
    )


def line_row(line: dict[str, Any]) -> tuple[str, ...]:
    reason = (line["error"] or {}).get("message") or (line["incomplete_details"] or {}).get("reason") or ""
    tokens = (line["usage"] or {}).get("output_tokens")
    return (
        str(line["line"]),
        line["custom_id"] or "-",
        line["status"],
        line["job_id"] or "-",
        "-" if tokens is None else f"{tokens:,}",
        reason,
    )


def facts(batch: Batch) -> list[tuple[str, str]]:
    said = [
        ("id", batch["id"]),
        ("status", _status(batch)),
        ("lines", _counted(batch)),
        ("endpoint", ", ".join(filter(None, (batch["endpoint"], batch["model"])))),
        ("tokens", _tokens(batch)),
        ("price", _price(batch)),
    ]
    if cost := _cost(batch):
        said.append(("cost", cost))
    times = {name: batch[f"{name}_at"] for name in ("created", "in_progress", *_ENDS, "expires")}
    said += [
        (_TIMES.get(name, name), local_time(at))
        for name, at in times.items()
        if at and (name != "expires" or not _ended_at(batch))
    ]
    files = (("input", "input_file_id"), ("output", "output_file_id"), ("errors", "error_file_id"))
    said += [(name, batch[field]) for name, field in files if batch[field]]
    if batch["retry_of"]:
        said.append(("retry of", batch["retry_of"]))
    return [*said, *(("metadata", f"{name}={value}") for name, value in batch["metadata"].items())]


_ENDS: Final = ("completed", "failed", "expired", "cancelled")
_TIMES: Final = {"in_progress": "started", "expires": "window"}


def verdict(batch: Batch) -> str:
    """The last line of watching."""
    if batch["status"] == BatchStatus.FAILED:
        return _failed(batch)
    parts = [batch["status"], _counted(batch), f"{_tokens(batch)} tokens"]
    seconds = (_ended_at(batch) or batch["created_at"]) - batch["created_at"]
    parts.append(in_words(seconds))
    if seconds and (ended := ended_lines(batch)):
        parts.append(f"{ended / seconds:,.1f} lines/s")
    if cost := money(batch, batch["cost"]):
        parts.append(cost)
    return " · ".join(parts)


def _failed(batch: Batch) -> str:
    bad, total = faults_total(batch), batch["request_counts"]["total"]
    if not bad:
        return "failed: nothing was run"
    said = f"failed: {bad:,} of {total:,} lines cannot be run, so nothing was"
    return f"{said} (--on-invalid skip runs the others)" if bad < total else said


def ways_on(batch: Batch) -> Iterator[str]:
    """Where the results are, and what can be done about the rest."""
    batch_id = batch["id"]
    if batch["output_file_id"]:
        yield f"Answers: longhaul batch output {batch_id}   (file {batch['output_file_id']})"
    if batch["error_file_id"]:
        yield f"Errors:  longhaul batch errors {batch_id}   (file {batch['error_file_id']})"
    if batch["request_counts"]["failed"] > faults_total(batch) and not batch["dry_run"]:
        yield f"Again:   longhaul batch retry {batch_id}"


def cancelled(batch: Batch) -> str:
    is_ended = BatchStatus(batch["status"]).is_terminal
    status = batch["status"] if is_ended else "being cancelled"
    return f"{batch['id']} is {status}: {_counted(batch)}."


def faults(batch: Batch) -> list[str]:
    """What is wrong, a line each: with the file's lines, or with the whole."""
    errors = batch["errors"]
    if not errors:
        return []
    told = [_fault(fault) for fault in errors["data"]]
    if (left := errors["total"] - len(told)) > 0:
        told.append(f"and {left:,} more: longhaul batch errors {batch['id']}")
    return told


def faults_total(batch: Batch) -> int:
    """Lines that cannot be run."""
    errors = batch["errors"]
    return errors["total"] if errors and errors["data"][0]["line"] else 0


def _fault(fault: dict[str, Any]) -> str:
    if not fault["line"]:
        return f"{fault['message']} ({fault['code']})"
    where = f"line {fault['line']}" + (f", column {fault['column']}" if fault["column"] else "")
    param = fault["param"]
    return f"{where}: {fault['message']}" + (f" ({param})" if param and param not in fault["message"] else "")


def estimated(batch: Batch) -> list[tuple[str, str]]:
    """What a dry run found."""
    found = batch["estimate"]
    if not found:
        return []
    bad = f", {found['invalid']:,} of them cannot be run" if found["invalid"] else ""
    said = [
        ("lines", f"{found['lines']:,}{bad}"),
        ("tokens", f"{found['input_tokens']:,} in, at most {found['max_output_tokens']:,} out"),
        ("price", _price(batch)),
    ]
    if most := money(batch, found["cost_max"]):
        said.append(("cost", f"at most {most}, {money(batch, found['cost_input'])} of it for input"))
    else:
        said.append(("cost", "unknown: a model has no price here"))
    return said


def money(batch: Batch, amount: str | None) -> str | None:
    """Two digits, or for small amounts as many as tell something."""
    if amount is None:
        return None
    value = float(amount)
    digits = 2 if value >= 1 or not value else 1 - math.floor(math.log10(value))
    return f"{value:,.{digits}f} {batch['currency']}"


def _status(batch: Batch) -> str:
    return f"{batch['status']}, dry run" if batch["dry_run"] else str(batch["status"])


def _counted(batch: Batch) -> str:
    counts = batch["request_counts"]
    if not counts["total"]:
        return "no line counted yet" if batch["status"] == BatchStatus.VALIDATING else "no lines"
    whole = "1 line" if counts["total"] == 1 else f"{counts['total']:,} lines"
    done = [f"{counts[name]:,} {name}" for name in ("completed", "failed") if counts[name]]
    running = [f"{batch['running']:,} running"] if batch["running"] else []
    return ", ".join([whole, *done, *running])


def _tokens(batch: Batch) -> str:
    usage = batch["usage"]
    return f"{usage['input_tokens']:,} in, {usage['output_tokens']:,} out"


def _price(batch: Batch) -> str:
    return f"{batch['price_factor']:g} of the model's, within {batch['completion_window']}"


def _cost(batch: Batch) -> str | None:
    cost = money(batch, batch["cost"])
    most = money(batch, (batch["estimate"] or {}).get("cost_max"))
    return f"{cost}, of at most {most}" if cost and most and not _ended_at(batch) else cost


def _ended_at(batch: Batch) -> int | None:
    return next((batch[f"{name}_at"] for name in _ENDS if batch[f"{name}_at"]), None)
