"""What 10,000 deaths in one incident cost: from logs, from events, and as a watcher judges them.

Processor time is counted, and memory at its highest, of a process that does nothing else.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rows import Row, publish

from workerdiag import Diagnosis, explain
from workerdiag.incidents import WatchedDeath, judge
from workerdiag.model.evidence import Event, Inspected, ProcessExit
from workerdiag.model.identity import Identity

COUNT = 10_000
GOAL_S, GOAL_MB = 5.0, 300.0
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC).timestamp()


def rows() -> Iterator[Row]:
    """Each way on which so many deaths arrive, and what is made of them."""
    explain(logs=[])  # what is imported on the way is there then
    with tempfile.TemporaryDirectory() as folder:
        logs = write_logs(Path(folder))
        yield from answer_rows(f"log of {COUNT:,} deaths", lambda: explain(logs=logs, timeout="60s"))
    source = Known()
    yield from answer_rows(f"events of {COUNT:,} deaths", lambda: explain(sources=[source], timeout="60s"))
    taken_s, (incident,) = cpu_s(lambda: judge([watched(n) for n in range(COUNT)], timeout_s=60))
    yield Row(what=f"{COUNT:,} deaths judged by a watcher", measured=taken_s, unit="s", goal=GOAL_S)
    count = incident.diagnosis.death_count
    yield Row(what="  deaths told", measured=count, unit="", goal=COUNT, at_least=True)
    yield Row(what="memory at its highest", measured=peak_mb(), unit="MB", goal=GOAL_MB)


def answer_rows(what: str, act: Callable[[], Diagnosis]) -> Iterator[Row]:
    """An answer, and its renderings and its bundle."""
    taken_s, found = cpu_s(act)
    yield Row(what=what, measured=taken_s, unit="s", goal=GOAL_S)
    yield Row(what="  deaths told", measured=found.death_count, unit="")
    shown_s, _ = cpu_s(lambda: (str(found), found.to_markdown(), found.to_html(), found.to_json()))
    yield Row(what="  as text, Markdown, HTML and JSON", measured=shown_s, unit="s", goal=1.0)


def cpu_s(act: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of processor time that it takes, and what it returns."""
    began = time.process_time()
    found = act()
    return time.process_time() - began, found


def peak_mb() -> float:
    """Memory of this process at its highest."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def address(number: int) -> str:
    """Of a worker."""
    return f"tcp://10.0.{number // 100}.{number % 100}:{30_000 + number}"


def when(number: int) -> float:
    """Two hundred die in each second."""
    return NOON + number / 200


def write_logs(folder: Path) -> list[Path]:
    """The scheduler's log, in which all come and go, and those of the first hundred nannies."""
    lines = [line(NOON - 600 + n / 200, "scheduler", registered(n)) for n in range(COUNT)]
    lines += [line(when(n), "scheduler", removed(n)) for n in range(COUNT)]
    (folder / "scheduler.log").write_text("".join(lines), encoding="utf-8")
    for number in range(100):
        killed = f"Worker process {number + 5000} was killed by signal 9"
        started = line(NOON - 600, "worker", f"      Start worker at: {address(number)}")
        text = started + line(when(number) + 0.02, "nanny", killed)
        (folder / f"nanny-{number:03}.log").write_text(text, encoding="utf-8")
    return sorted(folder.iterdir())


def registered(number: int) -> str:
    """As the scheduler words it."""
    return f"Register worker addr: {address(number)} name: w{number}"


def removed(number: int) -> str:
    """As the scheduler words it."""
    stimulus = f"handle-worker-cleanup-{when(number)}"
    return f"Remove worker addr: {address(number)} name: w{number} (stimulus_id='{stimulus}')"


def line(moment: float, logger: str, text: str) -> str:
    """One message as Dask logs it."""
    stamp = datetime.fromtimestamp(moment, tz=UTC)
    time_text = f"{stamp:%Y-%m-%d %H:%M:%S},{stamp.microsecond // 1000:03d}"
    return f"{time_text} - distributed.{logger} - INFO - {text}\n"


def watched(number: int) -> WatchedDeath:
    """A death as a recorder tells of it: one task was there, and a signal ended the process."""
    identity = Identity(worker=address(number), pid=number + 5000, name=f"w{number}")
    return WatchedDeath(
        id=f"death-{number}", when=when(number), identity=identity, evidence=(gone(number), killed(number))
    )


def gone(number: int) -> Event:
    """That the scheduler lost the worker."""
    fields = {"action": "remove-worker", "worker": address(number), "processing": f"('x', {number})"}
    identity = Identity(worker=address(number), pid=number + 5000)
    return Event(topic="all", fields=fields | {"expected": False}, when=when(number), identity=identity)


def killed(number: int) -> ProcessExit:
    """How its process ended."""
    identity = Identity(worker=address(number), pid=number + 5000)
    return ProcessExit(identity=identity, signal=9, when=when(number) + 0.02, reporter="nanny report")


class Known:
    """A source that has all deaths at hand."""

    name = "all deaths"

    def collect(self, *, budget_s: float) -> Iterator[Any]:
        """Two pieces of each."""
        del budget_s
        for number in range(COUNT):
            yield gone(number)
            yield killed(number)
        yield Inspected(place="scheduler events")


if __name__ == "__main__":
    publish(rows())
