"""Triage on one and on two processes, and what it finds beside what was planted.

    python benchmarks/triage.py [--mib 512] [--part-mib 32] [--rounds 3]

Each cluster has read a log before, so that importing and compiling do not count. The efficiency is a
product of two shares, both at most 1 whatever else the machine does: the CPU time of all on one process
over that on two, and, of two processes, the time in which each had something to do, from the call to
its return. What is done one after the other, by the client or by one worker, lowers the second. Rounds
alternate; of the CPU times the least counts, since neighbours only add to them, and of the shares the
median. By the clock it is a goal where the machine had nothing else to do.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import logs
from attrs import frozen
from distributed import Client, LocalCluster, get_task_stream
from rows import Row, publish

import workerdiag
from workerdiag.triage.tables import DeathRow

MIB = 1024 * 1024
#: Deaths planted in each file; each is of a worker of its own.
DEATHS = 5
#: With no more cores than this for others, the clock can be believed.
CALM_CORES = 0.1


@frozen
class Measured:
    """One triage."""

    wall_s: float
    #: CPU time of this process, with the scheduler in it; and of all workers.
    client_s: float
    worker_s: float
    #: Of the time from the call to its return, the share in which workers had something to do.
    busy: float
    #: Cores of this machine that others had meanwhile.
    others: float
    deaths: tuple[DeathRow, ...]

    @property
    def cpu_s(self) -> float:
        """CPU time of all."""
        return self.client_s + self.worker_s


def write_logs(folder: Path, mib: int, file_mib: int) -> int:
    """Logs of about so many MiB, with deaths in each. Returns how many deaths."""
    planted = 0
    calm = [logs.lines(20_000, deaths=0, seed=seed).encode() for seed in range(4)]
    for number in range(mib // file_mib):
        deadly = logs.lines(20_000, deaths=DEATHS, seed=1000 + number).encode()
        with (folder / f"{number:03}.log").open("wb") as file:
            file.write(deadly)
            planted += DEATHS
            index = 0
            while file.tell() < file_mib * MIB:
                file.write(calm[index % len(calm)])
                index += 1
    return planted


def measured(folder: Path, warm_up: Path, processes: int, part_bytes: int) -> Measured:
    """A triage of *folder* on so many processes of one thread."""
    with (
        LocalCluster(n_workers=processes, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for worker in client.nthreads():
            client.submit(_search, str(warm_up), workers=[worker], pure=False).result()
        before, client_s, machine_s = client.run(time.process_time), time.process_time(), busy_cpu_s()
        began_s = time.perf_counter()
        with get_task_stream(client) as stream:
            result = workerdiag.triage(folder, client, share=1, part_bytes=part_bytes)
            wall_s = time.perf_counter() - began_s
        client_s, machine_s = time.process_time() - client_s, busy_cpu_s() - machine_s
        after = client.run(time.process_time)
    task_s = sum(each["stop"] - each["start"] for task in stream.data for each in task["startstops"])
    worker_s = sum(after.values()) - sum(before.values())
    return Measured(
        wall_s=wall_s,
        client_s=client_s,
        worker_s=worker_s,
        busy=task_s / (processes * wall_s),
        others=max(0.0, machine_s - client_s - worker_s) / wall_s,
        deaths=result.deaths,
    )


def busy_cpu_s() -> float:
    """CPU time of everything on this machine since it started (``man 5 proc_stat``)."""
    user, nice, system, _idle, _io, irq, softirq = map(
        int, Path("/proc/stat").read_text(encoding="ascii").split("\n")[0].split()[1:8]
    )
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _search(place: str) -> None:
    from workerdiag.triage.parts import LogFile, Part
    from workerdiag.triage.scan import ScanSettings, scan_part

    scan_part(Part(file=LogFile(place=place, url=place)), ScanSettings())


def rows(mib: int, part_mib: int, rounds: int) -> Iterator[Row]:
    """Efficiency and accuracy."""
    with tempfile.TemporaryDirectory(prefix="workerdiag-bench-") as place:
        folder, warm_up = Path(place, "logs"), Path(place, "warm-up.log")
        folder.mkdir()
        planted = write_logs(folder, mib, 2 * part_mib)
        logs.write(warm_up, 4 * MIB)
        found = [
            (measured(folder, warm_up, 1, part_mib * MIB), measured(folder, warm_up, 2, part_mib * MIB))
            for _ in range(rounds)
        ]
    ones, twos = zip(*found, strict=True)
    one, two = (min(each, key=lambda measure: measure.cpu_s) for each in (ones, twos))
    for measure, name in ((one, "1 process"), (two, "2 processes")):
        yield Row(what=f"{mib} MiB on {name}", measured=measure.wall_s, unit="s")
        yield Row(what=f"  CPU time of client and scheduler, on {name}", measured=measure.client_s, unit="s")
        yield Row(what=f"  CPU time of the workers, on {name}", measured=measure.worker_s, unit="s")
    yield Row(what="speed of a process, in CPU time", measured=mib * 1.048576 / one.worker_s, unit="MB/s")
    busy = statistics.median(each.busy for each in twos)
    yield Row(what="share of the time in which both had something to do", measured=busy, unit="x")
    efficiency = min(1.0, one.cpu_s / two.cpu_s) * busy
    yield Row(what="efficiency of 2 processes", measured=efficiency, unit="x", goal=0.85, at_least=True)
    yield from clock_rows(found)
    yield from accuracy_rows(one.deaths, two.deaths, planted)


def clock_rows(found: Sequence[tuple[Measured, Measured]]) -> Iterator[Row]:
    """The efficiency by the clock, in the calmest round."""
    one, two = min(found, key=lambda pair: pair[0].others + pair[1].others)
    others = max(one.others, two.others)
    goal = 0.85 if others <= CALM_CORES else None
    by_clock = one.wall_s / (2 * two.wall_s)
    yield Row(what="cores that others had in the calmest round", measured=others, unit="")
    yield Row(what="  efficiency by the clock", measured=by_clock, unit="x", goal=goal, at_least=True)


def accuracy_rows(one: Sequence[DeathRow], two: Sequence[DeathRow], planted: int) -> Iterator[Row]:
    """Recall and precision of what was planted, and whether both tables are the same."""
    explained = sum(each.cause == "nanny.memory-terminate" for each in one)
    yield Row(what="planted deaths found", measured=explained / planted, unit="x", goal=1.0, at_least=True)
    yield Row(what="deaths found that were not planted", measured=len(one) - explained, unit="", goal=0)
    differing = len(set(one) ^ set(two))
    yield Row(what="deaths that differ between 1 and 2 processes", measured=differing, unit="", goal=0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--part-mib", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    publish(rows(given.mib, given.part_mib, given.rounds))
