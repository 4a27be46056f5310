"""What a bench found: figures, each with the reference of the same run and, where there is one, its aim; as a
table for people and as one JSON line for programs. It measures nothing but the machine's load.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

import orjson


@dataclass(frozen=True, slots=True)
class Aim:
    """A bound on a figure's value, or on its ratio to the reference."""

    of: Literal["value", "ratio"]
    sign: Literal["<=", ">="]
    bound: float

    def __str__(self) -> str:
        return f"{'ratio ' if self.of == 'ratio' else ''}{self.sign} {_short(self.bound)}"

    def is_met_by(self, figure: "Figure") -> bool:
        found = figure.value if self.of == "value" else figure.ratio
        return found is not None and (found <= self.bound if self.sign == "<=" else found >= self.bound)


@dataclass(frozen=True, slots=True)
class Figure:
    """`rounds` are the values behind the figure where it was measured more than once, in the unit of the
    value, or ratios where the aim is about the ratio.
    """

    name: str
    value: float
    unit: str
    reference: float | None = None
    aim: Aim | None = None
    rounds: Sequence[float] = field(default=())

    @property
    def ratio(self) -> float | None:
        return self.value / self.reference if self.reference else None

    @property
    def is_ok(self) -> bool | None:
        return None if self.aim is None else self.aim.is_met_by(self)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": _rounded(self.value),
            "reference": None if self.reference is None else _rounded(self.reference),
            "unit": self.unit,
            "aim": None if self.aim is None else str(self.aim),
            "ok": self.is_ok,
        }


class Report:
    def __init__(self, bench: str) -> None:
        self.bench = bench
        self.figures: list[Figure] = []
        self.notes: list[str] = []
        self._load_before = os.getloadavg()[0]

    def add(self, *figures: Figure) -> None:
        self.figures += figures

    def note(self, text: str) -> None:
        self.notes.append(text)

    @property
    def machine(self) -> dict[str, Any]:
        """Load is the mean number of runnable processes of the last minute: high before means noisy figures."""
        return {
            "cpus": os.cpu_count(),
            "load_before": round(self._load_before, 2),
            "load_after": round(os.getloadavg()[0], 2),
        }

    def print_table(self) -> None:
        rows = [("", "figure", "reference", "ratio", "aim", "")]
        rows += [_row(figure) for figure in self.figures]
        widths = [max(len(row[column]) for row in rows) for column in range(6)]
        for row in rows:
            cells = [row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in range(1, 5)), row[5]]
            print("  ".join(cells).rstrip())
        for note in self.notes:
            print(f"  {note}")
        machine = self.machine
        print(
            f"  {machine['cpus']} CPUs; load {machine['load_before']} before, {machine['load_after']} after.",
            flush=True,
        )

    def json_line(self) -> str:
        found = {
            "bench": self.bench,
            "aims": [figure.as_json() for figure in self.figures if figure.aim],
            "spread": {figure.name: _spread(figure.rounds) for figure in self.figures if figure.rounds},
            "figures": [figure.as_json() for figure in self.figures if not figure.aim],
            "machine": self.machine,
        }
        return orjson.dumps(found).decode()


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def _spread(rounds: Sequence[float]) -> dict[str, Any]:
    return {
        "low": _rounded(min(rounds)),
        "median": _rounded(median(rounds)),
        "high": _rounded(max(rounds)),
        "rounds": len(rounds),
    }


def _row(figure: Figure) -> tuple[str, str, str, str, str, str]:
    reference = "" if figure.reference is None else _short(figure.reference)
    ratio = "" if figure.ratio is None else f"{figure.ratio:.3f}"
    verdict = {None: "", True: "ok", False: "MISSED"}[figure.is_ok]
    return (
        figure.name,
        f"{_short(figure.value)} {figure.unit}",
        reference,
        ratio,
        str(figure.aim) if figure.aim else "",
        verdict,
    )


def _rounded(value: float) -> float:
    """Four significant digits, and whole numbers whole."""
    return float(f"{value:.4g}") if abs(value) < 1000 else round(value)


def _short(value: float) -> str:
    return f"{_rounded(value):,}".removesuffix(".0")
