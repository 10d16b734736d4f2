"""Runs every benchmark and prints one table.

    python benchmarks/run.py [FOLDER...]

Each FOLDER holds labelled deaths, on which accuracy is measured (see accuracy.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from rows import Row, table

HERE = Path(__file__).parent


def measured(script: str, *arguments: str) -> list[Row]:
    """The rows of one benchmark, run in a process of its own; one row that misses its goal if it fails."""
    command = [sys.executable, str(HERE / script), "--json", *arguments]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        return [Row(what=f"{script} failed, exit status", measured=run.returncode, unit="", goal=0)]
    return [Row(**row) for row in json.loads(run.stdout)]


def main() -> int:
    """Exit status 1 when a goal was missed."""
    rows = [
        *measured("import_time.py"),
        *measured("small_log.py"),
        *measured("live.py"),
        *measured("large_scheduler.py"),
        *measured("many_deaths.py"),
        *measured("failing_sources.py"),
        *measured("patience.py"),
        *measured("patience_live.py"),
        *measured("box_cost.py"),
        *measured("box_kill.py"),
        *measured("scan.py"),
        *measured("watch_idle.py"),
        *measured("watch_loop.py"),
        *measured("page_paint.py"),
        *measured("auto_cost.py", "--pairs", "6"),
        *(row for folder in sys.argv[1:] for row in measured("accuracy.py", folder)),
    ]
    print(table(rows))
    return int(any(row.verdict == "MISSED" for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
