"""Programs that die of memory for natural reasons, with the knobs that a user would turn, and what turning one did.

Two workers of 500 MiB and two threads each kill every one of them. No program knows of workerdiag, and nothing in
workerdiag knows of a program:

    python -m tests.lab.cures [--only NAME,...] [--recorder]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Any

import dask
from attrs import frozen
from distributed import Client, LocalCluster

import workerdiag
from workerdiag import Diagnosis
from workerdiag.model.memory import Cure
from workerdiag.model.vocabulary import CureKind, MemoryReason

MIB = 2**20
Knobs = Mapping[str, Any]
#: The knob that a cure turns off, by its kind.
_SWITCHES: Mapping[CureKind, str] = {
    "data-in-tasks": "embed",
    "do-not-collect": "collect",
    "fix-leak": "keep",
    "spread-key": "skew",
}
#: A program that has not ended by then stands still.
PATIENCE_S = 60.0
_TABLE = 20_000_000


@frozen(kw_only=True)
class Program:
    """One program."""

    run: Callable[[Client, Knobs], object]
    #: Why it goes over the limit, from how it is written.
    reason: MemoryReason
    knobs: Knobs


def standardize(client: Client, knobs: Knobs) -> object:
    """Subtract a mean over an axis that is in one chunk."""
    import dask.array as da

    side = max(1, knobs["piece"] // (4_000 * 8))
    x = da.random.random((4_000, 20_000), chunks=(4_000, min(side, 20_000)))
    return (x - x.mean(axis=0)).sum().compute()


def table_in_each_task(client: Client, knobs: Knobs) -> object:
    """Look values up in a table that each task brings along, or makes."""
    import numpy as np

    if not knobs["embed"]:
        return client.gather(client.map(float, range(8), pure=False))
    table = np.ones(_TABLE)
    return client.gather(client.map(lambda index: float((table * 2).cumsum()[index]), range(8), pure=False))


def load_images(client: Client, knobs: Knobs) -> object:
    """Load what two threads at once have no room for."""
    import numpy as np

    def load(number: int) -> float:
        image = np.ones(32_000_000) * number
        time.sleep(1)
        return float(image.sum())

    return client.gather(client.map(load, range(6), pure=False))


def remember_results(client: Client, knobs: Knobs) -> None:
    """Keep something of each task in the worker."""

    def remember(number: int, *, keep: bool) -> int:
        import sys

        kept = sys.__dict__.setdefault("_kept_by_the_program", [])
        kept.append(bytearray(30 * 2**20))
        if not keep:
            kept.clear()
        return number

    for start in range(0, 120, 12):
        client.gather(client.map(remember, range(start, start + 12), keep=knobs["keep"], pure=False))


def bring_together(client: Client, knobs: Knobs) -> object:
    """Put all parts into one, or sum them where they are."""
    import numpy as np

    parts = client.map(lambda _: np.ones(5_000_000), range(18), pure=False)
    if knobs["collect"]:
        return client.submit(lambda every: float(np.concatenate(every).sum()), parts).result()
    return client.submit(sum, client.map(lambda part: float(part.sum()), parts)).result()


PROGRAMS: Mapping[str, Program] = {
    "standardize": Program(run=standardize, reason="pieces-too-large", knobs={"piece": 320_000_000}),
    "table_in_each_task": Program(run=table_in_each_task, reason="data-in-graph", knobs={"embed": True}),
    "load_images": Program(run=load_images, reason="too-many-at-once", knobs={}),
    "remember_results": Program(run=remember_results, reason="leak", knobs={"keep": True}),
    "bring_together": Program(run=bring_together, reason="brought-together", knobs={"collect": True}),
}
_WORKER: Knobs = {"memory": 500 * MIB, "threads": 2}


def attempt(
    program: Program, knobs: Knobs, *, recorder: bool = False, patience_s: float = PATIENCE_S
) -> Diagnosis | None:
    """Run it; return None if it succeeds, or what is said about it."""
    from concurrent.futures import ThreadPoolExecutor

    knobs = {**_WORKER, **knobs}
    with (
        dask.config.set(knobs.get("config", {})),
        LocalCluster(
            n_workers=2, threads_per_worker=knobs["threads"], memory_limit=knobs["memory"], dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        if recorder:
            workerdiag.install(client)
        pool = ThreadPoolExecutor(1)
        running = pool.submit(program.run, client, knobs)
        pool.shutdown(wait=False)
        try:
            running.result(patience_s)
        except TimeoutError as problem:
            return workerdiag.explain(problem if running.done() else None, client, timeout="30s")
        except Exception as problem:
            return workerdiag.explain(problem, client, timeout="30s")
        return None


def turned(knobs: Knobs, cure: Cure) -> Knobs | None:
    """The knobs after a change; None if the program has no such knob."""
    match cure.kind:
        case "worker-memory":
            return {**knobs, "memory": cure.value}
        case "threads":
            return {**knobs, "threads": cure.value}
        case "piece-size" if "piece" in knobs:
            return {**knobs, "piece": cure.value}
        case kind if (knob := _SWITCHES.get(kind)) in knobs:
            return {**knobs, knob: False}
    return None


def main() -> None:
    """Print a table: the reason given and the true one, the first change, and whether it sufficed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=",".join(PROGRAMS))
    parser.add_argument("--recorder", action="store_true")
    options = parser.parse_args()
    for name in options.only.split(","):
        program = PROGRAMS[name]
        diagnosis = attempt(program, program.knobs, recorder=options.recorder)
        reason = diagnosis.memory.reason if diagnosis and diagnosis.memory else None
        cure = diagnosis.cures[0] if diagnosis and diagnosis.cures else None
        knobs = turned(program.knobs, cure) if cure else None
        is_cured = knobs is not None and attempt(program, knobs, recorder=options.recorder) is None
        change = f"{cure.kind} {cure.value or ''}" if cure else "none"
        print(f"| {name} | {program.reason} | {reason} | {change} | {'yes' if is_cured else 'no'} |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
