"""
How long the commonest call takes: one log of 200 lines, read in a notebook.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import logs
from rows import Row, publish

LINES = 200
RUNS = 30

FIRST = """
import sys, time
import distributed, workerdiag
text = sys.stdin.read()
began = time.perf_counter()
diagnosis = workerdiag.explain(logs=[workerdiag.LogText(text)])
assert diagnosis.outcome == "explained", diagnosis
print((time.perf_counter() - began) * 1e3)
"""


def rows() -> Iterator[Row]:
    """
    The first call of a process that has imported distributed, and later ones.
    """
    text = logs.lines(LINES, deaths=1)
    first = [
        float(
            subprocess.run(
                [sys.executable, "-c", FIRST], input=text, text=True, stdout=subprocess.PIPE, check=True
            ).stdout
        )
        for _ in range(5)
    ]
    yield Row(
        what="explain 200 lines, first call (loads the rules)", measured=statistics.median(first), unit="ms"
    )
    yield Row(what="explain 200 lines, later calls", measured=warm_ms(text), unit="ms", goal=20)


def warm_ms(text: str) -> float:
    """
    Median of calls after the first, in milliseconds.
    """
    import workerdiag

    taken = []
    for _ in range(RUNS + 1):
        began = time.perf_counter()
        workerdiag.explain(logs=[workerdiag.LogText(text)])
        taken.append((time.perf_counter() - began) * 1e3)
    return statistics.median(taken[1:])


if __name__ == "__main__":
    publish(rows())
