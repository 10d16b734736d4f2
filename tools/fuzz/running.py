"""One process that fuzzes: what it tries in which order, what it counts, what it keeps."""

from __future__ import annotations

import hashlib
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from attrs import define, field, frozen
from hypothesis import HealthCheck, Phase, given, seed, settings

from fuzz.attempts import ATTEMPTS, seeds
from fuzz.checks import FAILURES, failures, give_memory_back, peak_bytes
from fuzz.mutations import mutated

_ROUND = 50
#: Inputs that are kept of each failure of each kind.
_MOST_KEPT = 5
#: Kinds in turn: logs, which anybody can write into, most often; then files from anywhere.
TURNS = (
    *("log", "bundle", "box", "log", "exception"),
    *("log", "bundle", "box", "log", "client"),
    *("log", "bundle", "box", "log", "rules"),
)


@frozen(kw_only=True)
class Task:
    """What one process is to try."""

    folder: Path
    kinds: tuple[str, ...]
    #: Of the first round; each next one has the next number.
    seed: int
    inputs: int
    #: By `time.monotonic`.
    until: float


@define
class Tally:
    """What was tried, and what failed."""

    tried: Counter[str] = field(factory=Counter)
    failed: Counter[tuple[str, str]] = field(factory=Counter)
    peak_bytes: int = 0
    cpu_s: float = 0.0

    def add(self, other: Tally) -> None:
        """What another process counted."""
        self.tried += other.tried
        self.failed += other.failed
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)
        self.cpu_s += other.cpu_s

    def table(self) -> str:
        """A line for each kind."""
        rows = [f"{'':<10}{'tried':>8}" + "".join(f"{each:>17}" for each in FAILURES)]
        rows += [
            f"{kind:<10}{self.tried[kind]:>8}" + "".join(f"{self.failed[kind, each]:>17}" for each in FAILURES)
            for kind in ATTEMPTS
        ]
        total = self.tried.total()
        per_s = total / self.cpu_s if self.cpu_s else 0.0
        rows.append(
            f"{total} inputs, {per_s:.0f} in a second of CPU time; "
            f"peak memory of a process {self.peak_bytes / 1e6:.0f} MB"
        )
        return "\n".join(rows)


def current_path(folder: Path, number: int) -> Path:
    """Where the process with that first seed keeps the input that it tries."""
    return folder / f"current.{number}"


def tallies(task: Task) -> Iterator[Tally]:
    """What each round found."""
    warnings.simplefilter("ignore")
    task.folder.mkdir(parents=True, exist_ok=True)
    running = _Running(task)
    turns = [kind for kind in TURNS if kind in task.kinds]
    for number, kind in enumerate(cycle(turns), start=task.seed):
        left = task.inputs - running.count
        if left <= 0 or time.monotonic() >= task.until:
            break
        yield running.round(kind, number, min(_ROUND, left))
    current_path(task.folder, task.seed).unlink(missing_ok=True)


@define
class _Running:
    _task: Task
    count: int = 0
    _kept: Counter[tuple[str, str]] = field(factory=Counter)

    def round(self, kind: str, number: int, count: int) -> Tally:
        """Some inputs of a kind."""
        tally, began_s = Tally(), time.process_time()

        @seed(number)
        @settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(mutated(kind, seeds(kind)))
        def attempt(data: bytes) -> None:
            if time.monotonic() < self._task.until:
                self._try(kind, data, tally)

        attempt()
        give_memory_back()
        self.count += tally.tried.total()
        tally.peak_bytes = peak_bytes()
        tally.cpu_s = time.process_time() - began_s
        return tally

    def _try(self, kind: str, data: bytes, tally: Tally) -> None:
        current_path(self._task.folder, self._task.seed).write_bytes(kind.encode() + b"\n" + data)
        tally.tried[kind] += 1
        for said in failures(kind, data):
            failure = said.partition(":")[0]
            tally.failed[kind, failure] += 1
            self._kept[kind, failure] += 1
            if self._kept[kind, failure] <= _MOST_KEPT:
                print(f"{kind}: {said}: {keep(self._task.folder, kind, failure, data)}", flush=True)


def keep(folder: Path, kind: str, failure: str, data: bytes) -> Path:
    """Keep an input that failed."""
    path = folder / f"{kind}.{failure}.{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    return path
