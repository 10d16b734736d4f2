"""What ``import workerdiag`` costs over a bare interpreter, and what the first explanation loads."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from rows import Row, publish

RUNS = 15


def started_ms(code: str) -> float:
    """Median wall time of an interpreter that runs *code*, in milliseconds."""
    taken = []
    for _ in range(RUNS):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        taken.append((time.perf_counter() - began) * 1e3)
    return statistics.median(taken)


def rows() -> Iterator[Row]:
    """The import, and the import with everything that explaining needs."""
    bare = started_ms("pass")
    yield Row(
        what="import workerdiag, over the interpreter",
        measured=started_ms("import workerdiag") - bare,
        unit="ms",
        goal=60,
    )
    yield Row(
        what="import and load all rules, over the interpreter",
        measured=started_ms("import workerdiag; workerdiag.load_rulebook()") - bare,
        unit="ms",
    )


if __name__ == "__main__":
    publish(rows())
