"""The commands for API keys. They work on the database itself: whoever has its address may make keys."""
# ruff: noqa: PLC0415 - `longhaul --help` starts faster without what only a running command needs

from datetime import datetime
from typing import Annotated

import typer

from app.cli.errors import CommandFailed
from app.cli.limits import amount, stored

app = typer.Typer(help="API keys.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What the key is for.")],
    *,
    account: Annotated[str, typer.Option(help="Whose key it is; made if there is none.")] = "local",
) -> None:
    """Make a key and print its secret, this one time."""
    from app.accounts.keys import create_account, create_key, find_account
    from app.cli.database import opened

    if not name.strip() or not account.strip():
        raise CommandFailed("Neither a key nor an account may have an empty name.")
    with opened() as session:
        owner = find_account(session, account) or create_account(session, account)
        key, secret = create_key(session, owner, name)
    typer.echo(f"{key.id} is a key of account {account}. Its secret is shown only now:", err=True)
    typer.echo(secret)


@app.command("list")
def list_all() -> None:
    """List all keys, oldest first."""
    from app.accounts.keys import list_keys
    from app.cli.database import opened
    from app.cli.table import print_table

    with opened() as session:
        keys = list_keys(session)
    print_table(
        ("id", "account", "name", "ends in", "created", "revoked"),
        [
            (key.id, account, key.name, key.hint, _local(key.created_at), _local(key.revoked_at))
            for key, account in keys
        ],
    )


@app.command()
def revoke(key_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Revoke a key for good."""
    from app.accounts.keys import revoke_key
    from app.cli.database import opened
    from config.settings import settings

    with opened() as session:
        if not revoke_key(session, key_id):
            raise CommandFailed(f"No key with id {key_id!r}; `longhaul keys list` shows them.")
    typer.echo(f"{key_id} is revoked; it stops working within {settings().key_cache_seconds:.0f} s.")


@app.command()
def limit(
    key_id: Annotated[str, typer.Argument(metavar="ID")],
    *,
    requests_per_minute: Annotated[int | None, typer.Option(parser=amount, metavar="N|default")] = None,
    tokens_per_minute: Annotated[int | None, typer.Option(parser=amount, metavar="N|default")] = None,
) -> None:
    """Limit a key besides its account. 0 and `default` are no limit of its own."""
    from app.accounts.keys import find_key
    from app.cli.database import opened
    from config.settings import settings

    with opened() as session:
        key = find_key(session, key_id)
        if key is None:
            raise CommandFailed(f"No key with id {key_id!r}; `longhaul keys list` shows them.")
        if requests_per_minute is not None:
            key.requests_per_minute = stored(requests_per_minute)
        if tokens_per_minute is not None:
            key.tokens_per_minute = stored(tokens_per_minute)
    typer.echo(f"{key_id} is changed; it takes effect within {settings().key_cache_seconds:.0f} s.")


def _local(at: datetime | None) -> str:
    return "-" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
