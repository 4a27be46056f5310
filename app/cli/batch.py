"""The commands for batches: submit, watch, show, list, cancel, retry, output, errors, lines, estimate. They own
options and what goes to standard output, and speak to the API alone.
"""
# ruff: noqa: PLC0415 - `longhaul --help` starts faster without what only a running command needs

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.batches.states import OnInvalid
from app.cli.jobs import Key, Url, pairs, say
from config.queues import Window

if TYPE_CHECKING:
    from app.cli.client import Api

app = typer.Typer(help="Batches: many requests in one file, at a lower price.", no_args_is_help=True)

BatchId = Annotated[str, typer.Argument(metavar="BATCH_ID")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="A request a line, as JSON (.jsonl).")]
Endpoint = Annotated[str | None, typer.Option(help="Of every line; else the `url` of the file's first.")]
InWindow = Annotated[Window | None, typer.Option("--window", help="By when it is wanted; else 24h.")]
Watch = Annotated[bool, typer.Option("--watch", help="Show how it comes forward, to its end.")]
AsJson = Annotated[bool, typer.Option("--json", help="The API's answer as it is.")]
To = Annotated[Path | None, typer.Option("--to", help="Write it to this file, not to standard output.")]
ESTIMATED_FILE_SECONDS: Final = 3_600  # how long a file that is only estimated is kept, at most


@app.command()
def submit(
    file: File,
    *,
    endpoint: Endpoint = None,
    window: InWindow = None,
    on_invalid: Annotated[
        OnInvalid | None, typer.Option(help="What lines that cannot be run do: fail the batch, or be skipped.")
    ] = None,
    metadata: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="May be repeated.")] = None,
    webhook_url: Annotated[str | None, typer.Option(help="Told of its end.")] = None,
    watch: Watch = False,
    as_json: AsJson = False,
    url: Url = None,
    key: Key = None,
) -> None:
    """Run every line of a file, and print the batch's id.

    Exit status with --watch: 0 every line completed, 2 some did, 1 anything else. Ctrl-C leaves it running.
    """
    from app.cli.batch_files import endpoint_of, upload
    from app.cli.client import connect

    body = {
        "endpoint": endpoint or endpoint_of(file),
        "completion_window": window,
        "on_invalid": on_invalid,
        "metadata": pairs(metadata or []),
        "webhook_url": webhook_url,
    }
    api = connect(url, key)
    stored = upload(api, file)
    given = {name: value for name, value in body.items() if value is not None}
    created = api.call("POST", "/v1/batches", body={"input_file_id": stored["id"], **given})
    _started(api, created, watch=watch, as_json=as_json)


@app.command("watch")
def watch_one(batch_id: BatchId, *, as_json: AsJson = False, url: Url = None, key: Key = None) -> None:
    """Show how a batch comes forward, to its end.

    Exit status: 0 every line completed, 2 some did, 1 anything else. Ctrl-C leaves it running.
    """
    from app.cli.client import batch_path, connect

    api = connect(url, key)
    _watch(api, api.call("GET", batch_path(batch_id)), as_json=as_json)


@app.command()
def show(batch_id: BatchId, *, as_json: AsJson = False, url: Url = None, key: Key = None) -> None:
    """Print a batch: how far it is, what it used, which of its lines cannot be run."""
    from app.cli.batch_words import facts, faults
    from app.cli.client import batch_path, connect

    found = connect(url, key).call("GET", batch_path(batch_id))
    if as_json:
        _print_json(found)
        return
    for name, value in facts(found):
        say(f"{name:<9} {value}")
    if problems := faults(found):
        say("\n" + "\n".join(problems))


@app.command("list")
def list_batches(
    *,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 20,
    after: Annotated[str | None, typer.Option(help="The last id of the page before.")] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """List batches, newest first."""
    from app.cli.batch_words import COLUMNS, row
    from app.cli.client import connect
    from app.cli.table import print_table

    params = {"limit": limit} | ({"after": after} if after else {})
    found = connect(url, key).call("GET", "/v1/batches", params=params)
    print_table(COLUMNS, [row(one) for one in found["data"]])


@app.command()
def cancel(
    batch_id: BatchId,
    *,
    line: Annotated[int | None, typer.Option(min=1, help="Only this line.")] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Stop a batch, or one line of it; what it has produced stays."""
    from app.cli.batch_words import cancelled
    from app.cli.client import batch_path, connect

    path = batch_path(batch_id)
    api = connect(url, key)
    if line is not None:
        found = api.call("POST", f"{path}/lines/{line}/cancel")
        say(f"Line {line} of {batch_id} is {found['status']}.")
        return
    say(cancelled(api.call("POST", f"{path}/cancel")))


@app.command()
def retry(
    batch_id: BatchId, *, watch: Watch = False, as_json: AsJson = False, url: Url = None, key: Key = None
) -> None:
    """Run the lines of an ended batch again that did not complete, as a new batch, and print its id."""
    from app.cli.client import batch_path, connect

    api = connect(url, key)
    _started(api, api.call("POST", f"{batch_path(batch_id)}/retry"), watch=watch, as_json=as_json)


@app.command()
def output(batch_id: BatchId, *, to: To = None, url: Url = None, key: Key = None) -> None:
    """Print the answers, a line each; while the batch runs, those that are there."""
    _download(batch_id, "output", to, url, key)


@app.command()
def errors(batch_id: BatchId, *, to: To = None, url: Url = None, key: Key = None) -> None:
    """Print what went wrong, a line each: lines that cannot be run, and those that failed."""
    _download(batch_id, "errors", to, url, key)


@app.command()
def lines(
    batch_id: BatchId,
    *,
    status: Annotated[str | None, typer.Option(help="A job's status, or invalid.")] = None,
    after: Annotated[int, typer.Option(min=0, help="Show what follows this line.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 20,
    url: Url = None,
    key: Key = None,
) -> None:
    """List a batch's lines and the jobs that they are."""
    from app.cli.batch_words import LINE_COLUMNS, line_row
    from app.cli.client import batch_path, connect
    from app.cli.table import print_table

    params = {"after": after, "limit": limit} | ({"status": status} if status else {})
    found = connect(url, key).call("GET", f"{batch_path(batch_id)}/lines", params=params)
    print_table(LINE_COLUMNS, [line_row(one) for one in found["data"]])
    if found["has_more"]:
        typer.echo(f"There are more: --after {found['next_after']}", err=True)


@app.command()
def estimate(
    file: File,
    *,
    endpoint: Endpoint = None,
    window: InWindow = None,
    as_json: AsJson = False,
    url: Url = None,
    key: Key = None,
) -> None:
    """Check every line of a file and say what it would cost; nothing is run.

    Exit status: 0 every line can be run, 2 some can, 1 none.
    """
    from app.cli.batch_files import endpoint_of, upload
    from app.cli.batch_watching import await_end
    from app.cli.batch_words import checked_status, estimated, faults
    from app.cli.client import connect

    asked = {"endpoint": endpoint or endpoint_of(file), "dry_run": True, "on_invalid": OnInvalid.SKIP}
    api = connect(url, key)
    stored = upload(api, file, seconds=ESTIMATED_FILE_SECONDS)
    body = {**asked, "input_file_id": stored["id"]} | ({"completion_window": window} if window else {})
    try:
        found = await_end(api, api.call("POST", "/v1/batches", body=body))
    finally:
        api.call("DELETE", f"/v1/files/{stored['id']}")
    for problem in faults(found):
        typer.echo(problem, err=True)
    if as_json:
        _print_json(found)
    else:
        for name, value in estimated(found):
            say(f"{name:<9} {value}")
    raise typer.Exit(checked_status(found))


def _started(api: "Api", created: dict[str, Any], *, watch: bool, as_json: bool) -> None:
    if not as_json:
        say(created["id"])
    elif not watch:
        _print_json(created)
    if watch:
        _watch(api, created, as_json=as_json)


def _watch(api: "Api", found: dict[str, Any], *, as_json: bool) -> None:
    from app.cli.batch_watching import watch
    from app.cli.batch_words import exit_status

    ended = watch(api, found)
    if as_json:
        _print_json(ended)
    raise typer.Exit(exit_status(ended))


def _download(batch_id: str, what: str, to: Path | None, url: str | None, key: str | None) -> None:
    from app.cli.batch_files import save
    from app.cli.client import batch_path, connect

    save(connect(url, key).download(f"{batch_path(batch_id)}/{what}"), to)


def _print_json(found: dict[str, Any]) -> None:
    say(json.dumps(found, indent=2, ensure_ascii=sys.stdout.isatty()))
