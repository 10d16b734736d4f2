"""How much CPU time the commonest call takes: one log of 200 lines, read in a notebook.

The first call of a process is measured beyond its imports, and only where the package is installed: a
checkout has no compiled rules.
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

EXPLAIN = "diagnosis = workerdiag.explain(logs=[workerdiag.LogText(text)])"
#: What a process has imported after its first call.
MODULES = f"""
import sys
import distributed, workerdiag
before = set(sys.modules)
text = sys.stdin.read()
{EXPLAIN}
print(*(name for name in sys.modules if name not in before and not name.startswith("_")))
"""
#: A process that imports the modules that it was told first.
FIRST = f"""
import importlib, sys, time
import distributed, workerdiag
text = sys.stdin.read()
for name in sys.argv[1:]:
    importlib.import_module(name)
began = time.process_time()
{EXPLAIN}
assert diagnosis.outcome == "explained", diagnosis
print((time.process_time() - began) * 1e3)
"""


def rows() -> Iterator[Row]:
    """The first call of a process that has imported distributed, and later ones."""
    text = logs.lines(LINES, deaths=1)
    modules = printed(MODULES, text).split()
    first = [float(printed(FIRST, text, *modules)) for _ in range(5)]
    yield Row(
        what="explain 200 lines, first call beyond imports (loads the rules)",
        measured=statistics.median(first),
        unit="ms",
        goal=60,
    )
    yield Row(what="explain 200 lines, later calls", measured=warm_ms(text), unit="ms", goal=2)


def printed(program: str, text: str, *arguments: str) -> str:
    """What a process of Python prints that is given *text*."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, input=text, text=True, stdout=subprocess.PIPE, check=True).stdout


def warm_ms(text: str) -> float:
    """Median of calls after the first, in milliseconds."""
    import workerdiag

    taken = []
    for _ in range(RUNS + 1):
        began = time.process_time()
        workerdiag.explain(logs=[workerdiag.LogText(text)])
        taken.append((time.process_time() - began) * 1e3)
    return statistics.median(taken[1:])


if __name__ == "__main__":
    publish(rows())
