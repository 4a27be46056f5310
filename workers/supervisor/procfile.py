"""Reads a Procfile: names and command lines, in its order."""

import re
from pathlib import Path
from typing import Final

from config.settings import ROOT

PROCFILE: Final = ROOT / "Procfile"
_LINE: Final = re.compile(r"(?P<name>[A-Za-z0-9_-]+):\s*(?P<command>\S.*?)\s*")


def read_procfile(path: Path = PROCFILE) -> dict[str, str]:
    """Raises `ValueError` on a line that is neither `name: command`, a comment, nor blank."""
    commands = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"{path}, line {number}: expected 'name: command'.")
        commands[match["name"]] = match["command"]
    return commands
