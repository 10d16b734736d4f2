"""Kills real workers and replays their kits: how many kinds of work leave one, and how right the replays are.

    python tools/replays.py kinds              # kinds of work x ways to run it: does it leave a kit
    python tools/replays.py verdicts --runs 20 # tasks that kill alone, and in company
    python tools/replays.py limits --runs 20   # workers with 1.05 and .90 of the limit that a replay names

It needs numpy, pandas and xarray, and about 2 GB.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import dask
import numpy as np
import pandas as pd
from distributed import Client, Nanny, Scheduler, SpecCluster, wait
from distributed.scheduler import KilledWorker

import workerdiag

MB = 10**6


def hold(megabytes: float, seconds: float = 0.3) -> int:
    """Fill so much memory bit by bit, and keep it for a while."""
    kept = []
    for _ in range(int(megabytes // 10)):
        kept.append(np.ones(10 * MB // 8))
        time.sleep(0.005)
    time.sleep(seconds)
    return len(kept)


def blow(value: Any, *_: Any, megabytes: float = 400) -> Any:
    """Return what it was given, after taking much memory."""
    hold(megabytes)
    return value


def concatenate(frames: int) -> tuple[int, int]:
    """Join many columns, which takes them twice."""
    parts = [pd.DataFrame({f"c{j}_{k}": np.ones(200_000) for k in range(4)}) for j in range(frames)]
    wide = pd.concat(parts, axis=1)
    time.sleep(0.15)
    return wide.shape


def order(count: int) -> float:
    """Sort numbers."""
    values = np.random.default_rng(0).random(count)
    both = np.sort(values) + values
    time.sleep(0.1)
    return float(both[0])


def texts(count: int) -> int:
    """Make many small objects."""
    made = [f"s-{number}" for number in range(count)]
    time.sleep(0.15)
    return len(made)


#: By name: a task, and its argument such that it takes some 300 to 500 MB.
HUNGRY: dict[str, tuple[Callable[[int], object], int]] = {
    "hold": (hold, 300),
    "concat": (concatenate, 40),
    "sort": (order, 20_000_000),
    "texts": (texts, 5_000_000),
}


@contextmanager
def cluster(limit_bytes: int, *, threads: int = 1, workers: int = 1) -> Iterator[Client]:
    """A scheduler with the recorder, and nannies with workers, which die once and for all."""
    nanny = {"cls": Nanny, "options": {"nthreads": threads, "memory_limit": limit_bytes, "dashboard": False}}
    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "host": "127.0.0.1"}}
    specs = {f"worker-{number}": nanny for number in range(workers)}
    quiet = {
        "distributed.scheduler.allowed-failures": 0,
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
    }
    with dask.config.set(quiet), SpecCluster(scheduler=scheduler, workers=specs, silence_logs=50) as it:  # noqa: SIM117
        with Client(it) as client:
            workerdiag.install(client)
            yield client


def works() -> dict[str, Callable[[], Any]]:
    """By kind: makes a collection of which some task takes too much memory."""
    import dask.array as da
    import dask.bag as db
    import dask.dataframe as dd
    import xarray as xr

    array = da.random.random((2000, 2000), chunks=(1000, 1000))
    dataset = xr.DataArray(array, dims=("a", "b"))
    frame = dd.from_pandas(pd.DataFrame({"a": range(50_000), "b": 1.0}), npartitions=4)
    return {
        "delayed": partial(dask.delayed(blow), dask.delayed(np.ones)((20, 20))),
        "array": array.map_blocks(blow, dtype=float).sum,
        "dataframe": frame.map_partitions(blow, meta=frame.head(0)).b.sum,
        "xarray": xr.apply_ufunc(blow, dataset, dask="parallelized", output_dtypes=[float]).mean,
        "bag": db.from_sequence(range(8), npartitions=2).map(blow).sum,
    }


def submitted(client: Client, way: str) -> object:
    """The same by `Client.submit`, with an input that is held, dropped, or mapped."""
    made = client.submit(np.ones, (20, 20), pure=False)
    if way == "futures":
        return client.gather(client.map(blow, [made, made], pure=False))
    found = client.submit(blow, made, pure=False)
    if way == "persist":
        del made
    return found.result()


WAYS: dict[str, Callable[[Client, Any], object]] = {
    "compute": lambda _, work: work.compute(),
    "persist": lambda _, work: wait_for(work.persist()),
    "futures": lambda client, work: client.compute(work).result(),
}


def wait_for(work: Any) -> object:
    """What a persisted collection holds."""
    wait(work)
    return work.compute()


def kinds(runs: int) -> None:
    """For each kind and way: whether there is a kit, and what its replay says."""
    kits = right = tried = 0
    for kind in (*works(), "submit"):
        for way, run in WAYS.items():
            for _ in range(runs):
                with cluster(500 * MB) as client:
                    work = partial(submitted, client, way)
                    if kind != "submit":
                        work = partial(run, client, works()[kind]())
                    diagnosis = diagnosed(client, work)
                replay = diagnosis.kit.replay() if diagnosis is not None and diagnosis.kit is not None else None
                tried += 1
                kits += replay is not None and replay.obstacle is None
                right += replay is not None and replay.verdict == "kills-alone"
                print(kind, way, replay and (replay.verdict, replay.detail, replay.needs_memory_bytes), flush=True)
    print(f"{kits} of {tried} left a kit that can be replayed; {right} kill alone")


def diagnosed(client: Client, work: Callable[[], object]) -> workerdiag.Diagnosis | None:
    """What is said of its death; None if it did not die."""
    try:
        work()
    except KilledWorker as problem:
        began = time.monotonic()
        diagnosis = workerdiag.explain(problem, client, timeout="60s")
        print(f"explained in {time.monotonic() - began:.2f} s", end=" ")
        return diagnosis
    return None


def verdicts(runs: int) -> None:
    """Whether tasks that kill alone, and in company, are told apart."""
    for wanted, heavy, normal, threads in (("kills-alone", 500, 30, 2), ("only-in-company", 260, 120, 2)):
        right = died = 0
        while died < runs:
            with cluster(500 * MB, threads=threads) as client:
                loads = [dask.delayed(np.ones)(5, dask_key_name=f"load-{n}") for n in range(6)]
                sizes = [heavy if number == 2 else normal for number in range(6)]
                made = [
                    dask.delayed(blow)(each, megabytes=size, dask_key_name=f"work-{number}")
                    for number, (each, size) in enumerate(zip(loads, sizes, strict=True))
                ]
                diagnosis = diagnosed(client, dask.delayed(len)(made).compute)
            if diagnosis is None:
                continue
            died += 1
            replay = diagnosis.kit.replay() if diagnosis.kit is not None else None
            right += replay is not None and replay.verdict == wanted
            print(wanted, "got", replay and (replay.verdict, replay.needs_memory_bytes), flush=True)
        print(f"{wanted}: {right} of {died} right")


def lives(client: Client, function: Callable[[int], object], argument: int) -> bool:
    """Whether a worker lives while it runs that task."""
    try:
        client.submit(function, argument, pure=False).result(timeout=120)
    except KilledWorker:
        return False
    return True


def limits(runs: int, only: list[str]) -> None:
    """How many workers live at 1.05, and die at .90, of the limit that a replay of their task names."""
    lived = {1.05: 0, 0.9: 0}
    tried = 0
    for name, (function, argument) in HUNGRY.items():
        if only and name not in only:
            continue
        with cluster(400 * MB) as client:
            diagnosis = diagnosed(client, client.submit(function, argument).result)
        replay = diagnosis.kit.replay()
        needs = replay.needs_memory_bytes
        print(name, replay.verdict, "peak", replay.peak_bytes, "needs", needs, flush=True)
        tried += runs
        for share in lived:
            for _ in range(runs):
                with cluster(int(needs * share)) as client:
                    lived[share] += lives(client, function, argument)
        print(name, tried, lived, flush=True)
    print(f"of {tried} workers each: {lived[1.05]} lived at 1.05, {tried - lived[0.9]} died at .90")


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("kinds", "verdicts", "limits"))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[], choices=sorted(HUNGRY))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    if given.what == "limits":
        limits(given.runs, given.only)
    else:
        {"kinds": kinds, "verdicts": verdicts}[given.what](given.runs)


if __name__ == "__main__":
    sys.exit(main())
