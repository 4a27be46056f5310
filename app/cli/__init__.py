"""The `longhaul` command: which commands there are, and how one says that it failed. Each module of commands
holds options alone and loads what does the work when it is called, so that the command itself starts fast.
"""

from typing import Any

import typer
from typer.core import TyperGroup

from app.cli import accounts, batch, database, jobs, keys, queue
from app.cli.errors import CommandFailed
from app.cli.text import harmless
from app.cli.up import up


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CommandFailed as error:
            typer.echo(harmless(str(error)), err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=_Commands,
    help="Model work that outlives an HTTP request: submit jobs, watch them, run the platform.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.command()(up)
for command in (jobs.submit, jobs.watch, jobs.get, jobs.cancel):
    app.command()(command)
app.command("jobs")(jobs.list_jobs)
app.add_typer(batch.app, name="batch")
app.add_typer(keys.app, name="keys")
app.add_typer(accounts.app, name="accounts")
app.add_typer(queue.app, name="queue")
app.add_typer(database.app, name="db")


def main() -> None:
    app()
