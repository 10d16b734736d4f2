"""
Triage on one and on two processes, and what it finds beside what was planted.

    python benchmarks/triage.py [--mib 512] [--part-mib 32]

Each cluster has read a log before, so that importing and compiling do not count. By the clock the
efficiency is right on a machine with two cores and nothing else to do; so it is put together from what others
change little: the CPU time that the same work takes, and the share of the time in which workers had work.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import logs
from attrs import frozen
from distributed import Client, LocalCluster, get_task_stream
from rows import Row, publish

import workerdiag
from workerdiag.triage.rows import DeathRow

MIB = 1024 * 1024
#: Deaths planted in each file; each is of a worker of its own.
DEATHS = 5


@frozen
class Measured:
    """
    One triage.
    """

    wall_s: float
    #: CPU time of all workers.
    cpu_s: float
    #: Share of the time, from the call to its return, in which a worker had a part to read.
    busy: float
    deaths: tuple[DeathRow, ...]


def write_logs(folder: Path, mib: int, file_mib: int) -> int:
    """
    Logs of about so many MiB, with deaths in each. Returns how many deaths.
    """
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
    """
    A triage of *folder* on so many processes of one thread.
    """
    with (
        LocalCluster(n_workers=processes, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for worker in client.nthreads():
            client.submit(_search, str(warm_up), workers=[worker], pure=False).result()
        before = client.run(time.process_time)
        began_s = time.perf_counter()
        with get_task_stream(client) as stream:
            result = workerdiag.triage(folder, client, share=1, part_bytes=part_bytes)
            wall_s = time.perf_counter() - began_s
        cpu_s = sum(client.run(time.process_time).values()) - sum(before.values())
    busy_s = sum(each["stop"] - each["start"] for task in stream.data for each in task["startstops"])
    return Measured(wall_s, cpu_s, busy_s / (processes * wall_s), result.deaths)


def _search(place: str) -> None:
    from workerdiag.triage.parts import LogFile, Part
    from workerdiag.triage.scan import ScanSettings, scan_part

    scan_part(Part(file=LogFile(place=place, url=place)), ScanSettings())


def rows(mib: int, part_mib: int) -> Iterator[Row]:
    """
    Efficiency and accuracy.
    """
    with tempfile.TemporaryDirectory(prefix="workerdiag-bench-") as place:
        folder, warm_up = Path(place, "logs"), Path(place, "warm-up.log")
        folder.mkdir()
        planted = write_logs(folder, mib, 2 * part_mib)
        logs.write(warm_up, 4 * MIB)
        one, two = (measured(folder, warm_up, processes, part_mib * MIB) for processes in (1, 2))
    for measure, name in ((one, "1 process"), (two, "2 processes")):
        yield Row(what=f"{mib} MiB on {name}", measured=measure.wall_s, unit="s")
        yield Row(what=f"share of the time that workers had work, on {name}", measured=measure.busy, unit="x")
    yield Row(what="speed of a process, in CPU time", measured=mib * 1.048576 / one.cpu_s, unit="MB/s")
    efficiency = one.cpu_s / two.cpu_s * two.busy / one.busy
    yield Row(what="efficiency of 2 processes", measured=efficiency, unit="x", goal=0.85, at_least=True)
    yield Row(what="the same by the clock", measured=one.wall_s / (2 * two.wall_s), unit="x")
    found, again = set(one.deaths), set(two.deaths)
    explained = sum(each.cause == "nanny.memory-terminate" for each in found)
    yield Row(what="planted deaths found", measured=explained / planted, unit="x", goal=1.0, at_least=True)
    yield Row(
        what="found on 2 processes of those on 1",
        measured=len(found & again) / len(found),
        unit="x",
        goal=1.0,
        at_least=True,
    )
    yield Row(what="found on 2 processes and not on 1", measured=len(again - found), unit="deaths", goal=0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--part-mib", type=int, default=32)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    publish(rows(given.mib, given.part_mib))
