"""The commands for the line: who waits, and steering it. They work on the database itself, as an operator."""
# ruff: noqa: PLC0415 - `longhaul --help` starts faster without what only a running command needs

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.errors import CommandFailed
from config.queues import Tier

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from app.gate.shedding import Shedding
    from app.line.measures import Measure

app = typer.Typer(help="The line: who waits, and steering it.")

Model = Annotated[str, typer.Argument(help="A model of the catalogue.")]
OfTier = Annotated[Tier | None, typer.Option("--tier", help="Else both.")]
JobId = Annotated[str, typer.Argument(metavar="JOB")]


@app.callback(invoke_without_command=True)
def show(context: typer.Context) -> None:
    """Show every line: what waits, for how long, and how fast it goes."""
    if context.invoked_subcommand is not None:
        return
    from app.cli.database import opened
    from app.cli.table import print_table
    from app.line.lines import line_of, read_lines
    from config.catalogue import catalogue

    with opened() as session:
        lines = read_lines(session)
    known = {(model, tier) for model in catalogue() for tier in Tier}
    names = sorted(
        known | {name for name, line in lines.items() if line.jobs},
        key=lambda name: (name[0], name[1] != Tier.INTERACTIVE),
    )
    shedding = _find_shedding(names)
    print_table(
        ("model", "tier", "state", "waiting", "tokens", "oldest", "jobs/min", "free"),
        [_row(line_of(lines, *name), shedding.get(name)) for name in names],
    )
    _mind_the_age(max((line.measured_at for line in lines.values()), default=None))


def _row(line: "Measure", shedding: "Shedding | None") -> tuple[str, ...]:
    from app import clock
    from app.line.wording import in_words

    oldest = "-" if line.oldest_at is None else in_words((clock.now() - line.oldest_at).total_seconds())
    return (
        line.model,
        line.tier,
        "shedding" if shedding and shedding.is_on else line.state,
        f"{line.jobs:,}",
        _short(line.tokens),
        oldest,
        f"{line.jobs_per_second * 60:,.0f}",
        f"{line.free_slots}/{line.slots}",
    )


def _find_shedding(names: list[tuple[str, Tier]]) -> "dict[tuple[str, Tier], Shedding]":
    """Of none where no Redis is known here, or it is away."""
    from app.gate.shedding import find_shedding
    from app.redis import quick_client
    from config.settings import settings

    return find_shedding(quick_client(), names) if settings().redis_url else {}


def _mind_the_age(measured_at: datetime | None) -> None:
    from app import clock
    from app.line.estimates import STALE_SECONDS
    from app.line.lines import NEVER
    from app.line.wording import in_words

    if measured_at is None or measured_at == NEVER:
        typer.echo("Nothing was measured yet: does a dispatcher run?", err=True)
    elif (age_seconds := (clock.now() - measured_at).total_seconds()) > STALE_SECONDS:
        typer.echo(f"Measured {in_words(age_seconds)} ago: does a dispatcher run?", err=True)


def _short(count: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= 10 * size:
            return f"{count / size:.0f}{unit}"
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)


@app.command()
def jobs(
    model: Model,
    *,
    tier: OfTier = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Of each tier.")] = 20,
) -> None:
    """List who waits, in the order in which they are expected to start."""
    from app import clock
    from app.cli.database import opened
    from app.cli.table import print_table
    from app.line.places import first_in_line
    from app.line.wording import in_words

    now, rows = clock.now(), []
    with opened() as session:
        for each in [tier] if tier else list(Tier):
            for place, job in enumerate(first_in_line(session, _known(model), each, limit), 1):
                age = in_words((now - job.created_at).total_seconds())
                is_rung = job.placed_on is not None
                rows.append((job.job_id, each, "starts" if is_rung else str(place), job.account, age))
    if rows:
        print_table(("job", "tier", "place", "account", "age"), rows)
    else:
        typer.echo(f"Nobody waits for {model}.", err=True)


def _known(model: str) -> str:
    from config.catalogue import catalogue

    if model not in catalogue():
        raise CommandFailed(f"No model {model!r} in the catalogue, which has {', '.join(sorted(catalogue()))}.")
    return model


@app.command()
def pause(model: Model, *, tier: OfTier = None) -> None:
    """Start no more jobs of a model; it still takes them."""
    _set_state(model, tier, "paused")


@app.command()
def resume(model: Model, *, tier: OfTier = None) -> None:
    """Take and start jobs of a model again."""
    _set_state(model, tier, "open")


@app.command()
def drain(model: Model, *, tier: OfTier = None) -> None:
    """Take no more jobs of a model; those that wait still start."""
    _set_state(model, tier, "draining")


def _set_state(model: str, tier: Tier | None, state: str) -> None:
    from app.line.control import set_state
    from app.line.tables import LineState

    with _steering() as session:
        changes = set_state(session, model, tier, LineState(state))
    for change in changes:
        was = "as before" if change.was == change.state else f"it was {change.was}"
        typer.echo(f"The {change.tier} line of {change.model} is {change.state}; {was}.")


@app.command()
def move(
    job_id: JobId,
    *,
    front: Annotated[bool, typer.Option("--front", help="Before all others of its account.")] = False,
    back: Annotated[bool, typer.Option("--back", help="Behind all others of its account.")] = False,
    before: Annotated[str | None, typer.Option(metavar="JOB", help="Before another of its account.")] = None,
) -> None:
    """Let a waiting job go earlier or later than others of its account and tier.

    Between accounts, the line stays fair.
    """
    from app.line.control import Before, End, move_job

    if front + back + (before is not None) != 1:
        raise CommandFailed("Say where to: one of --front, --back and --before JOB.")
    where = Before(before) if before is not None else End.FRONT if front else End.BACK
    with _steering() as session:
        ahead = move_job(session, job_id, where)
    others = "no other job" if not ahead else "1 other job" if ahead == 1 else f"{ahead:,} other jobs"
    typer.echo(f"{job_id} now waits behind {others} of its account.")


@app.command()
def tier(
    job_id: JobId, new: Annotated[Tier, typer.Argument(metavar="TIER", help="batch or interactive.")]
) -> None:
    """Put a waiting job into the other tier.

    Its price and its completion window stay as its client agreed to.
    """
    from app.line.control import set_tier

    with _steering() as session:
        is_changed = set_tier(session, job_id, new)
    if is_changed:
        typer.echo(f"{job_id} is {new} now; its price and its completion window stay.")
    else:
        typer.echo(f"{job_id} is {new} already.")


@contextmanager
def _steering() -> "Iterator[Session]":
    """A transaction whose refusals are sentences; the dispatcher looks right after it, if Redis is known."""
    from app.cli.database import opened
    from app.dispatch import wake
    from app.jobs.errors import JobError
    from config.logging import configure_logging
    from config.settings import settings

    try:
        with opened() as session:
            yield session
    except JobError as error:
        raise CommandFailed(str(error)) from None
    if settings().redis_url:
        configure_logging()  # a warning of it is not to be among what was asked for
        wake()
