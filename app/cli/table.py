"""Rows for a person at a terminal, or as tab-separated lines for another program."""

import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.cli.text import harmless


def print_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not sys.stdout.isatty():
        for row in (names, *rows):
            print("\t".join(row))
        return
    table = Table(*names, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(*(Text(harmless(cell)) for cell in row))
    table.columns[0].no_wrap = True
    Console().print(table)
