"""The commands for accounts: who there is, and what each may do. They work on the database itself."""
# ruff: noqa: PLC0415 - `longhaul --help` starts faster without what only a running command needs

from typing import Annotated

import typer

from app.cli.errors import CommandFailed
from app.cli.limits import amount, shown, stored

app = typer.Typer(help="Accounts and their limits.", no_args_is_help=True)

Limit = Annotated[int | None, typer.Option(parser=amount, metavar="N|default")]


@app.command("list")
def list_all() -> None:
    """List all accounts with their limits; in brackets those that the installation sets for everyone."""
    from app.accounts.keys import list_accounts
    from app.cli.database import opened
    from app.cli.table import print_table
    from config.settings import settings

    with opened() as session:
        accounts = list_accounts(session)
    usual = settings()
    names = ("account", "id", "weight", "requests/min", "tokens/min", "batch tokens/min")
    print_table(
        (*names, "waiting jobs", "waiting tokens", "late windows"),
        [
            (
                account.name,
                account.id,
                f"{account.weight:g}",
                shown(account.requests_per_minute, usual.requests_per_minute),
                shown(account.tokens_per_minute, usual.tokens_per_minute),
                shown(account.batch_tokens_per_minute, usual.batch_tokens_per_minute),
                shown(account.max_waiting_jobs, usual.max_waiting_jobs),
                shown(account.max_waiting_tokens, usual.max_waiting_tokens),
                "accepted" if account.accepts_late_windows else "refused",
            )
            for account in accounts
        ],
    )


@app.command("set")
def set_limits(
    name: Annotated[str, typer.Argument(help="The account.")],
    *,
    weight: Annotated[float | None, typer.Option(help="Its share of the line, against 1 of others.")] = None,
    requests_per_minute: Limit = None,
    tokens_per_minute: Limit = None,
    batch_tokens_per_minute: Limit = None,
    max_waiting_jobs: Limit = None,
    max_waiting_tokens: Limit = None,
    accept_late_windows: Annotated[
        bool | None,
        typer.Option(
            "--accept-late-windows/--refuse-late-windows",
            help="Take jobs whose completion window can't be met, or refuse them.",
        ),
    ] = None,
) -> None:
    """Set what an account may do. 0 is no limit, `default` what the installation says."""
    from app.accounts.keys import find_account
    from app.cli.database import opened
    from config.settings import settings

    if weight is not None and not 0 < weight < float("inf"):
        raise CommandFailed("A weight is a number above 0.")
    limits = {
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "batch_tokens_per_minute": batch_tokens_per_minute,
        "max_waiting_jobs": max_waiting_jobs,
        "max_waiting_tokens": max_waiting_tokens,
    }
    with opened() as session:
        account = find_account(session, name)
        if account is None:
            raise CommandFailed(f"No account named {name!r}; `longhaul accounts list` shows them.")
        for column, limit in limits.items():
            if limit is not None:
                setattr(account, column, stored(limit))
        if weight is not None:
            account.weight = weight
        if accept_late_windows is not None:
            account.accepts_late_windows = accept_late_windows
    typer.echo(f"Account {name} is changed; it takes effect within {settings().key_cache_seconds:.0f} s.")
