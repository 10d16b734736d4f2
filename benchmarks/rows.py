"""What every benchmark prints: rows of what was measured, with the goal beside it.

A benchmark is a command of its own; with ``--json`` it prints the rows for ``run.py``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from statistics import mean, quantiles

from attrs import asdict, frozen


@frozen(kw_only=True)
class Row:
    """One measurement."""

    what: str
    measured: float
    unit: str
    #: The measurement is good up to here, or (``at_least``) from here on; None: only for comparison.
    goal: float | None = None
    at_least: bool = False

    @property
    def verdict(self) -> str:
        """``ok`` or ``MISSED``; nothing where there is no goal."""
        if self.goal is None:
            return ""
        good = self.measured >= self.goal if self.at_least else self.measured <= self.goal
        return "ok" if good else "MISSED"


def usual(values: Sequence[float]) -> float:
    """The mean of the middle half: what else the machine does makes some rounds very slow."""
    low, _, high = quantiles(values, n=4)
    return mean(each for each in values if low <= each <= high)


def timed(act: Callable[[], object]) -> float:
    """Seconds that it takes."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def seconds(what: str, measured: float, goal: float) -> Row:
    """Seconds, with the most that is allowed."""
    return Row(what=what, measured=measured, unit="s", goal=goal)


def publish(rows: Iterable[Row]) -> None:
    """Print *rows*: as a table, or as JSON where ``run.py`` asks for it; each row at once on standard error."""
    measured = []
    for row in rows:
        print(f"{row.what}: {row.measured:.3g} {row.unit}", file=sys.stderr, flush=True)
        measured.append(row)
    if "--json" in sys.argv:
        print(json.dumps([asdict(row) for row in measured]))
    else:
        print(table(measured))


def table(rows: Iterable[Row]) -> str:
    """Rows as aligned text."""
    lines = [("", "measured", "goal", "")]
    for row in rows:
        sign = ">=" if row.at_least else "<="
        goal = "" if row.goal is None else f"{sign} {row.goal:g} {row.unit}"
        lines.append(
            (
                row.what,
                f"{row.measured:.3g} {row.unit}" if row.measured < 1000 else f"{row.measured:.0f} {row.unit}",
                goal,
                row.verdict,
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        f"{what:<{widths[0]}}  {measured:>{widths[1]}}  {goal:<{widths[2]}}  {verdict}".rstrip()
        for what, measured, goal, verdict in lines
    )
