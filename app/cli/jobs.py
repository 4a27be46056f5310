"""The commands of a client: submit, watch, get, cancel, jobs. They own options and what is printed, and speak
to the API alone.
"""
# ruff: noqa: PLC0415 - `longhaul --help` starts faster without what only a running command needs

import json
import re
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.errors import CommandFailed
from app.cli.text import harmless
from app.jobs.states import Status
from config.queues import Tier, Window

JobId = Annotated[str, typer.Argument(metavar="JOB_ID")]
Url = Annotated[str | None, typer.Option("--url", help="Where the API is; else LONGHAUL_URL.")]
Key = Annotated[str | None, typer.Option("--key", help="The API key; else LONGHAUL_API_KEY.")]


def submit(
    prompt: Annotated[str, typer.Argument(help="What to ask; - reads it from standard input.")],
    *,
    model: Annotated[str | None, typer.Option(help="Else one that a worker serves.")] = None,
    tier: Annotated[Tier | None, typer.Option(help="Batch jobs yield to interactive ones.")] = None,
    window: Annotated[
        Window | None, typer.Option(help="By when it is wanted; else batch jobs have 24h.")
    ] = None,
    session: Annotated[str | None, typer.Option(help="Follow-ups of a session keep its place.")] = None,
    max_output_tokens: Annotated[int | None, typer.Option(min=1)] = None,
    temperature: Annotated[float | None, typer.Option(min=0, max=2)] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this string; may be repeated.")] = None,
    seed: Annotated[int | None, typer.Option()] = None,
    json_schema: Annotated[Path | None, typer.Option(help="A file with the schema of the output.")] = None,
    metadata: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="May be repeated.")] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="The same key gives the same job.")] = None,
    system: Annotated[str | None, typer.Option(help="Instructions that come before the prompt.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Print the job's id and don't wait.")] = False,
    url: Url = None,
    key: Key = None,
) -> None:
    """Submit a job and show its output as it comes.

    Exit status: 0 completed, 2 incomplete, 1 anything else. Ctrl-C leaves the job running.
    """
    body = {
        "input": sys.stdin.read() if prompt == "-" else prompt,
        "tier": tier,
        "completion_window": window,
        "session_id": session,
        "max_output_tokens": max_output_tokens,
        "temperature": temperature,
        "stop": stop,
        "seed": seed,
        "instructions": system,
        "metadata": pairs(metadata or []),
        "text": {"format": _schema_format(json_schema)} if json_schema else None,
    }
    from app import clock
    from app.cli.client import connect
    from app.cli.watching import watch as watch_job

    api = connect(url, key)
    body["model"] = model or _served_model(api.call("GET", "/v1/models")["data"])
    headers = {"Idempotency-Key": idempotency_key} if idempotency_key else None
    submitted_at = clock.monotonic()
    given = {name: value for name, value in body.items() if value is not None}
    job = api.call("POST", "/v1/jobs", body=given, headers=headers)
    if detach:
        typer.echo(job["id"])
        return
    # With a key of the client's the job may be an older one.
    raise typer.Exit(watch_job(api, job, submitted_at=None if idempotency_key else submitted_at))


def watch(
    job_id: JobId,
    *,
    after: Annotated[int, typer.Option(min=0, help="Show what follows this event.")] = 0,
    url: Url = None,
    key: Key = None,
) -> None:
    """Show a job's output from the beginning, then as it comes.

    Exit status: 0 completed, 2 incomplete, 1 anything else. Ctrl-C leaves the job running.
    """
    from app.cli.client import connect
    from app.cli.watching import watch as watch_job

    api = connect(url, key)
    raise typer.Exit(watch_job(api, api.job(job_id), after))


def get(
    job_id: JobId,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="The API's answer as it is.")] = False,
    url: Url = None,
    key: Key = None,
) -> None:
    """Print a job: its state, and its output so far."""
    from app.cli.client import connect

    job = connect(url, key).job(job_id)
    if as_json:
        say(json.dumps(job, indent=2, ensure_ascii=sys.stdout.isatty()))
        return
    for name, value in _facts(job):
        say(f"{name:<9} {value}")
    if text := (job.get("output") or {}).get("text"):
        say(f"\n{text}")


def cancel(job_id: JobId, *, url: Url = None, key: Key = None) -> None:
    """Stop a job; what it has produced stays."""
    from app.cli.client import connect, job_path

    job = connect(url, key).call("POST", f"{job_path(job_id)}/cancel")
    tokens = (job.get("usage") or {}).get("output_tokens", 0)
    status = job["status"] if Status(job["status"]).is_terminal else "being cancelled"
    say(f"{job['id']} is {status}, with {tokens} tokens of output.")


def list_jobs(
    *,
    status: Annotated[Status | None, typer.Option(help="Only those in this status.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 20,
    url: Url = None,
    key: Key = None,
) -> None:
    """List jobs, newest first."""
    from app.cli.client import connect
    from app.cli.table import print_table

    params = {"limit": limit, "order": "desc"} | ({"status": status.value} if status else {})
    jobs = connect(url, key).call("GET", "/v1/jobs", params=params)["data"]
    print_table(("id", "status", "model", "tier", "created", "tokens"), [_row(job) for job in jobs])


def say(text: str) -> None:
    typer.echo(harmless(text) if sys.stdout.isatty() else text)


def _row(job: dict[str, Any]) -> tuple[str, ...]:
    tokens = (job.get("usage") or {}).get("output_tokens", 0)
    return job["id"], job["status"], job["model"], job["tier"], local_time(job["created_at"]), str(tokens)


def _facts(job: dict[str, Any]) -> list[tuple[str, str]]:
    reasons = (
        (job.get("error") or {}).get("message"),
        (job.get("incomplete_details") or {}).get("reason"),
        (job.get("waiting") or {}).get("message"),
    )
    usage = job.get("usage") or {}
    facts = [
        ("id", job["id"]),
        ("status", ": ".join([job["status"], *(reason for reason in reasons if reason)])),
        ("model", f"{job['model']}, {job['tier']}"),
        ("tokens", f"{usage.get('input_tokens', 0)} in, {usage.get('output_tokens', 0)} out"),
    ]
    times = {name: job.get(f"{name}_at") for name in ("created", "started", "finished")}
    facts += [(name, local_time(at)) for name, at in times.items() if at]
    facts += [("metadata", f"{name}={value}") for name, value in (job.get("metadata") or {}).items()]
    return facts


def local_time(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def pairs(texts: list[str]) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise CommandFailed(f"--metadata takes NAME=VALUE, not {text!r}.")
    return dict(text.split("=", 1) for text in texts)


def _schema_format(file: Path) -> dict[str, Any]:
    try:
        schema = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandFailed(f"{file} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise CommandFailed(f"{file} does not hold JSON: {error}.") from None
    name = re.sub(r"[^A-Za-z0-9_-]", "_", file.stem)[:64]
    return {"type": "json_schema", "name": name, "schema": schema, "strict": True}


def _served_model(models: list[dict[str, Any]]) -> str:
    """The only model, or the only one that is served now, or that of the settings."""
    from config.settings import settings

    served = [model["id"] for model in models if model.get("workers")]
    return served[0] if len(served) == 1 else settings().model
