"""``nox -s fuzz -- --minutes N``: how often what may never happen did happen, and files with which it does.

Exit status 1 if anything did.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from fuzz.attempts import ATTEMPTS
from fuzz.jobs import fuzzed
from fuzz.running import Task


def main() -> int:
    """Fuzz for some minutes, or some inputs, every kind in turn."""
    parser = argparse.ArgumentParser(prog="nox -s fuzz --", description=__doc__)
    parser.add_argument("--minutes", type=float, default=None, help="how long to try (default: 2)")
    parser.add_argument("--inputs", type=int, default=None, help="how many to try, instead of --minutes")
    parser.add_argument("--jobs", type=int, default=1, help="processes that try at once (default: 1)")
    parser.add_argument("--folder", type=Path, default=Path("fuzz-failures"), help="for failing inputs")
    parser.add_argument("--kinds", nargs="+", choices=list(ATTEMPTS), default=list(ATTEMPTS))
    parser.add_argument("--seed", type=int, default=None, help="for the same inputs again")
    options = parser.parse_args()
    number = time.time_ns() if options.seed is None else options.seed
    print(f"seed {number}", flush=True)
    minutes = options.minutes or (2.0 if options.inputs is None else float("inf"))
    task = Task(
        folder=options.folder,
        kinds=tuple(options.kinds),
        seed=number,
        inputs=sys.maxsize if options.inputs is None else options.inputs,
        until=time.monotonic() + 60 * minutes,
    )
    total = fuzzed(task, options.jobs)
    print(total.table())
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
