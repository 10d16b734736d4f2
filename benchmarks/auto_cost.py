"""What `workerdiag.auto` costs a program that passes: with and without it, in pairs, on one cluster.

    python benchmarks/auto_cost.py [--pairs 12] [--rounds 40]

Both programs of a pair do the same work, in rounds of short naps, and are timed from start to end; "nothing"
is a second bare program, and shows the noise. Next to nothing is done for each task: what costs is loading the
rules, beside a program that works for longer than five seconds. On a busy machine look at the processor time.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from attrs import frozen
from overhead import cluster
from rows import Row, publish, usual

#: Rounds of a tenth of a second: most programs end before anything is loaded, the last one after some of it.
ROUNDS = (5, 40, 120)
PRELOAD = {"DASK_DISTRIBUTED__CLIENT__PRELOAD": "workerdiag.auto"}
#: How much longer a program may take, as a share.
GOAL = 1.05
PROGRAM = """
import sys, time
from distributed import Client
with Client(sys.argv[1]) as client:
    for _ in range(int(sys.argv[2])):
        client.gather(client.map(time.sleep, [0.01] * 40, pure=False))
"""


@frozen(kw_only=True)
class Run:
    """What one program took."""

    seconds: float
    #: Of the processor.
    cpu_seconds: float


def rows(pairs: int, lengths: Sequence[int]) -> Iterator[Row]:
    """For each length: the program with notes, and against itself."""
    with cluster() as client:
        address = client.scheduler.address
        run(address, min(lengths), PRELOAD)  # nobody's: files are in the system's cache after it
        for rounds in lengths:
            for what, extra in (("auto", PRELOAD), ("nothing", {})):
                taken = list(in_pairs(address, rounds, extra, pairs))
                share = usual([more.seconds / bare.seconds for bare, more in taken])
                cpu_share = usual([more.cpu_seconds / bare.cpu_seconds for bare, more in taken])
                cpu_s = usual([more.cpu_seconds - bare.cpu_seconds for bare, more in taken])
                name = f"program of {rounds} rounds, with {what}"
                goal = GOAL if extra else None
                yield Row(what=f"{name}: time", measured=share, unit="", goal=goal)
                yield Row(what=f"{name}: processor time", measured=cpu_share, unit="", goal=goal)
                yield Row(what=f"{name}: more processor time", measured=cpu_s * 1e3, unit="ms")


def in_pairs(address: str, rounds: int, extra: Mapping[str, str], pairs: int) -> Iterator[tuple[Run, Run]]:
    """A bare program and one with *extra* in its environment; which runs first is a matter of chance."""
    chance = Random(1)
    for _ in range(pairs):
        environments = ({}, extra)
        runs = {place: run(address, rounds, environments[place]) for place in chance.sample([0, 1], 2)}
        yield runs[0], runs[1]


def run(address: str, rounds: int, extra: Mapping[str, str]) -> Run:
    """One program, from its start until its end."""
    began, cpu_began = time.perf_counter(), _children_cpu_s()
    command = [sys.executable, "-c", PROGRAM, address, str(rounds)]
    subprocess.run(command, env={**os.environ, **extra}, stderr=subprocess.DEVNULL, check=True)
    return Run(seconds=time.perf_counter() - began, cpu_seconds=_children_cpu_s() - cpu_began)


def option(name: str) -> int | None:
    """The number behind an option of the command line, if it is given."""
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else None


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)  # of those that have ended: not the cluster
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    wanted = option("--pairs")
    length = option("--rounds")
    publish(rows(wanted or 12, (length,) if length else ROUNDS))
