"""Whether the flight recorder tells each death rightly: how the process ended, and which tasks ran in it then.

    python benchmarks/deaths.py [--seconds 240] [--seed 1] [--busy 0] [--json]

Two workers with two threads each die again and again, always another way, with a second task that runs
beside the deadly one; a third dies in a memory cgroup, where one can be made. ``--busy`` processes keep
the machine busy meanwhile. A death is told rightly if exactly one message tells of it, its exit is what was
provoked, both tasks are said to have run and no other, and of a crash the thread is. Where the nanny is
killed with its worker (the kernel does that too, at times, in the cgroup) nobody is told how that ended:
then no exit may be claimed but the signal that faulthandler saw. Linux only. It takes minutes, so
``run.py`` leaves it out; what is told wrongly is printed to standard error as it happens.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field, frozen
from rows import Row, publish

import workerdiag
from workerdiag.wire import DEATH_TOPIC
from workerdiag.wire.messages import DeathReport, ExitReport, decode_message

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the lab starts and kills real clusters

from lab import tasks
from lab.cluster import IMPATIENT, Lab
from lab.kernel import LabCgroup, UnavailableError, memory_group
from lab.processes import Daemon, LabError, wait_until

if TYPE_CHECKING:
    from distributed import Client

SEATS = 2
#: The nanny ends a worker at 95% of it.
LIMIT_MB = 500
GROUP_MB = 400


@frozen(kw_only=True)
class Way:
    """A way to die."""

    name: str
    #: The deadly task; where somebody else is deadly, one that waits for it.
    task: Callable[..., Any] = tasks.nap
    arguments: tuple[Any, ...] = ()
    signal: int | None = None
    status: int | None = None
    #: Of a crash, the thread is told as well.
    crashes: bool = False
    #: ``worker``: killed from outside; ``both``: its nanny is stopped first and killed with it; ``nanny``:
    #: that happens to the nanny alone, as the task ends the worker.
    shot: str = ""


def crash(after_s: float) -> Way:
    """A segfault so many seconds after the task has begun."""
    name = "segfault at once" if not after_s else "segfault within 50 ms"
    return Way(name=name, task=tasks.segfault, arguments=(None, after_s), signal=11, crashes=True)


Choice = Callable[[random.Random], Way]
NAP = (60,)
WAYS: tuple[Choice, ...] = (
    lambda _: crash(0),
    lambda chance: crash(chance.uniform(0, 0.05)),
    lambda _: Way(name="abort", task=tasks.abort, signal=6, crashes=True),
    lambda _: Way(name="os._exit(0)", task=os._exit, arguments=(0,), status=0),
    lambda _: Way(name="os._exit(3)", task=os._exit, arguments=(3,), status=3),
    lambda _: Way(name="os._exit(137)", task=os._exit, arguments=(137,), status=137),
    lambda _: Way(name="SIGKILL from outside", arguments=NAP, signal=9, shot="worker"),
    lambda _: Way(name="own SIGKILL", task=tasks.shoot_itself, arguments=(9,), signal=9),
    lambda _: Way(name="own SIGTERM", task=tasks.shoot_itself, arguments=(15,), signal=15),
    lambda _: Way(name="memory limit", task=tasks.burst, arguments=(LIMIT_MB + 100,), signal=15),
    lambda _: Way(name="nanny and worker killed", arguments=NAP, shot="both"),
    lambda _: Way(
        name="nanny killed, segfault",
        task=tasks.segfault,
        arguments=(None, 0.1),
        signal=11,
        crashes=True,
        shot="nanny",
    ),
)
BURST = Way(name="burst OOM in a cgroup", task=tasks.burst, arguments=(GROUP_MB + 200,), signal=9)


@frozen
class Reports:
    """What was told of the deaths, by pid."""

    reports: dict[int, list[DeathReport]] = field(factory=lambda: defaultdict(list))

    def hear(self, event: tuple[float, dict[str, Any]]) -> None:
        """Take one event of the topic."""
        report = decode_message(event[1])
        if isinstance(report, DeathReport):
            self.reports[report.pid or 0].append(report)


class Seat:
    """A place where one worker after the other dies.

    Args:
        lab: What starts them.
        name: Of their place.
        told: Where it is heard what is told of them.
        group: The memory cgroup that they live in.
    """

    def __init__(self, lab: Lab, name: str, reports: Reports, group: LabCgroup | None = None) -> None:
        self._lab = lab
        self._name = name
        self._reports = reports
        self._group = group
        self._started = 0
        self._dead = ""
        self._nth = 0

    def start(self) -> Daemon:
        """Start a nanny, and have it start workers from now on."""
        self._started += 1
        limit = "4GB" if self._group is not None else f"{LIMIT_MB}MB"
        self.daemon = self._lab.worker(
            *("--nthreads", "2"), name=f"{self._name}-{self._started}", memory_limit=limit, group=self._group
        )
        return self.daemon

    def dies(self, client: Client, way: Way) -> str:
        """Have the worker die; what is wrong with what was told of it, nothing if it is right."""
        self._nth += 1
        address, pid = self._worker(client)
        marks = [self._lab.mark(f"{self._name}-{self._nth}-{each}") for each in ("beside", "mark")]
        keys = {f"{self._name}-{self._nth}-beside": False, f"{self._name}-{self._nth}-deadly": True}
        beside, deadly = keys
        waits = client.submit(tasks.nap, *NAP, marks[0], key=beside, workers=[address])
        wait_until(Path(marks[0]).exists, "the task beside")
        if way.shot == "nanny":
            self.daemon.send(signal.SIGSTOP)  # so that it cannot see its worker die
        more = {"mark": marks[1]} if way.shot in ("worker", "both") else {}
        ends = client.submit(way.task, *way.arguments, **more, key=deadly, workers=[address])
        if more:
            wait_until(Path(marks[1]).exists, "the task to shoot")
        self._shoot(way, pid)
        self._dead = address
        problem = self._judge(way, pid, keys)
        client.cancel([waits, ends])
        return problem

    def _shoot(self, way: Way, pid: int) -> None:
        if way.shot == "both":
            self.daemon.send(signal.SIGSTOP)
        if way.shot in ("both", "worker"):
            os.kill(pid, signal.SIGKILL)
        if way.shot in ("both", "nanny"):
            wait_until(lambda: is_gone(pid), "the worker's end")
            self.daemon.send(signal.SIGKILL)
            self.daemon.close()
            self.start()

    def _worker(self, client: Client) -> tuple[str, int]:
        """Address and pid of the next worker, once it is there and its nanny knows it."""

        def look() -> tuple[str, int] | None:
            address = client.run_on_scheduler(address_of, f"{self._name}-{self._started}")
            if address in (None, self._dead):
                return None
            statuses = client.run(tasks.status, workers=[address], nanny=True, on_error="ignore")
            pids = client.run(os.getpid, workers=[address], on_error="ignore")
            running = set(statuses.values()) == {"running"} and address in pids
            return (address, pids[address]) if running else None

        return wait_until(look, f"a worker at {self._name}")

    def _judge(self, way: Way, pid: int, keys: dict[str, bool]) -> str:
        try:
            wait_until(lambda: self._reports.reports.get(pid) or is_gone(self.daemon.pid), "what is told")
            if gone := is_gone(self.daemon.pid):
                self.daemon.close()
                self.start()
            wait_until(lambda: self._reports.reports.get(pid), "what is told")
        except LabError:
            return "nothing was told"
        (report, *more) = self._reports.reports[pid]
        exit_, ran = report.exit or ExitReport(known_by="faulthandler"), report.running_tasks or ()
        if more:
            return f"told {len(more) + 1} times"
        both_killed = way.shot in ("both", "nanny") or (gone and report.kind == "box-found")
        known = (way.signal if way.crashes or not both_killed else None, way.status)
        if (exit_.signal, exit_.status) != known or (exit_.known_by == "nanny") == both_killed:
            return f"exit is {exit_}, {report.kind}, nanny running: {report.is_nanny_running}"
        if way.crashes:
            expected: object = keys
            reported: object = {each.key: each.is_on_crashed_thread for each in ran}
        else:
            expected, reported = sorted(keys), sorted(each.key for each in ran)
        return "" if reported == expected else f"ran {reported}, {report.box or 'no box'}"


def address_of(name: str, dask_scheduler: Any) -> str | None:
    """Address of a worker; runs on the scheduler."""
    return next((each.address for each in dask_scheduler.workers.values() if each.name == name), None)


def is_gone(pid: int) -> bool:
    """Whether a process has ended; its parent may not have asked how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def rows(seconds: float, seed: int, busy: int) -> Iterator[Row]:
    """The share of the deaths that were told rightly, how many there were, and of which kinds."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ["WORKERDIAG_RECORDER_DIRECTORY"] = str(folder / "boxes")
        for _ in range(busy):
            stack.callback(subprocess.Popen([sys.executable, "-c", "while True: pass"]).kill)
        lab = stack.enter_context(Lab(folder))
        lab.scheduler(**IMPATIENT)
        reports = Reports()
        seats = start_seats(lab, reports)
        client = lab.client(workers=len(seats))
        client.subscribe_topic(DEATH_TOPIC, reports.hear)
        workerdiag.install(client)
        until = time.monotonic() + seconds
        died, wrong = Counter[str](), Counter[str]()
        with ThreadPoolExecutor(len(seats)) as pool:
            runs = [
                pool.submit(kill_repeatedly, client, seat, ways, random.Random(seed + nth), until)
                for nth, (seat, ways) in enumerate(seats.items())
            ]
            for run in runs:
                for way, problem in run.result():
                    died[way] += 1
                    wrong[way] += bool(problem)
    yield Row(
        what="deaths with the right exit and running task",
        measured=1 - wrong.total() / died.total(),
        unit="",
        goal=1.0,
        at_least=True,
    )
    yield Row(what="of so many", measured=died.total(), unit="deaths")
    for name, count in sorted(died.items()):
        yield Row(what=f"  {name}", measured=count - wrong[name], unit=f"of {count}")


def start_seats(lab: Lab, reports: Reports) -> dict[Seat, tuple[Choice, ...]]:
    """The seats, each with its first worker under way, and the ways to die there."""
    seats = {Seat(lab, f"seat{number}", reports): WAYS for number in range(SEATS)}
    try:
        group = lab.enter_context(memory_group(limit_bytes=GROUP_MB * tasks.MB))
    except UnavailableError as problem:
        print(f"without the kernel's memory kills: {problem}", file=sys.stderr)
    else:
        seats[Seat(lab, "group", reports, group)] = (lambda _: BURST,)
    for seat in seats:
        seat.start()
    return seats


def kill_repeatedly(
    client: Client, seat: Seat, ways: tuple[Choice, ...], chance: random.Random, until: float
) -> list[tuple[str, str]]:
    """The name of each way, and what was wrong with what was told; all ways in turn, each time in another order."""
    results: list[tuple[str, str]] = []
    deck: list[Choice] = []
    while time.monotonic() < until:
        deck = deck or chance.sample(ways, len(ways))
        way = deck.pop()(chance)
        problem = seat.dies(client, way)
        results.append((way.name, problem))
        if problem:
            print(f"{way.name}: {problem}", file=sys.stderr)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    publish(rows(wanted.seconds, wanted.seed, wanted.busy))
