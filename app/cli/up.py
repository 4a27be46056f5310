"""The command `longhaul up` and its options; what it does is in `app.cli.startup`, loaded when asked for."""

from typing import Annotated

import typer


def up(
    *,
    once: Annotated[
        bool, typer.Option("--once", help="Stop after the sample job; exit 0 if it completed.")
    ] = False,
    model: Annotated[str | None, typer.Option(help="The catalogue's model that the GPU worker serves.")] = None,
    port: Annotated[int | None, typer.Option(help="The port of the API.")] = None,
) -> None:
    """Start Longhaul on this machine, answer one question, and stay up until Ctrl-C."""
    from app.cli.startup import run  # noqa: PLC0415 (the other commands start faster without it)

    raise typer.Exit(run(model=model, port=port, once=once))
