"""
``nox -s fuzz -- --minutes N``: how often what may never happen did happen, and files with which it does.

Exit status 1 if anything did.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

from attrs import define, field
from hypothesis import HealthCheck, Phase, given, seed, settings

from fuzz.attempts import ATTEMPTS, seeds
from fuzz.checks import FAILURES, failures
from fuzz.mutations import mutated

_ROUND = 50
#: Inputs that are kept of each failure of each kind.
_MOST_KEPT = 5


@define
class Fuzzing:
    """
    One run: what was tried, and what failed.
    """

    folder: Path
    until: float
    tried: Counter[str] = field(factory=Counter)
    failed: Counter[tuple[str, str]] = field(factory=Counter)

    def round(self, kind: str, number: int) -> None:
        """
        Some inputs of a kind.
        """

        @seed(number)
        @settings(
            max_examples=_ROUND,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(mutated(seeds(kind), lines=kind in {"log", "exception", "client"}))
        def attempt(data: bytes) -> None:
            if time.monotonic() < self.until:
                self._try(kind, data)

        attempt()

    def _try(self, kind: str, data: bytes) -> None:
        self.tried[kind] += 1
        for said in failures(kind, data):
            failure = said.partition(":")[0]
            self.failed[kind, failure] += 1
            if self.failed[kind, failure] <= _MOST_KEPT:
                print(f"{kind}: {said}: {self._keep(kind, failure, data)}", flush=True)

    def _keep(self, kind: str, failure: str, data: bytes) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{kind}.{failure}.{hashlib.sha256(data).hexdigest()[:12]}"
        path.write_bytes(data)
        return path

    def table(self) -> str:
        """
        What was tried and what failed, a line for each kind.
        """
        rows = [f"{'':<10}{'tried':>8}" + "".join(f"{each:>17}" for each in FAILURES)]
        rows += [
            f"{kind:<10}{self.tried[kind]:>8}"
            + "".join(f"{self.failed[kind, each]:>17}" for each in FAILURES)
            for kind in ATTEMPTS
        ]
        return "\n".join(rows)


def main() -> int:
    """
    Fuzz for some minutes, every kind in turn.
    """
    parser = argparse.ArgumentParser(prog="nox -s fuzz --", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="how long to try (default: 2)")
    parser.add_argument("--folder", type=Path, default=Path("fuzz-failures"), help="for failing inputs")
    parser.add_argument("--kinds", nargs="+", choices=list(ATTEMPTS), default=list(ATTEMPTS))
    parser.add_argument("--seed", type=int, default=None, help="for the same inputs again")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    number = time.time_ns() if options.seed is None else options.seed
    print(f"seed {number}", flush=True)
    fuzzing = Fuzzing(options.folder, time.monotonic() + 60 * options.minutes)
    while time.monotonic() < fuzzing.until:
        for kind in options.kinds:
            fuzzing.round(kind, number)
        number += 1
    print(fuzzing.table())
    return 1 if fuzzing.failed else 0


if __name__ == "__main__":
    sys.exit(main())
