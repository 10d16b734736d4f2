"""What the natural programs run on workers: honest work with an ordinary mistake in it.

Workers import this module, so it uses only the standard library and Dask.
"""

from __future__ import annotations

import importlib
import multiprocessing
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from distributed import Event, Lock, Queue, Variable, get_client

from .tasks import MB

_frames: list[bytearray] = []


def _filled(megabytes: int) -> bytearray:
    """Return memory that is really in use; a fresh ``bytearray`` is only promised."""
    return bytearray(b"\1") * (megabytes * MB)


# ---------------------------------------------------------------------------------------- memory


def load_lookup_table(mark: str) -> str:
    """Outgrow the worker at the first try; be modest at the next."""
    first = Path(mark)
    if first.exists():
        return "loaded"
    first.touch()
    held = []
    while True:
        held.append(_filled(15))
        time.sleep(0.02)


def load_all_rows(megabytes: int) -> int:
    """Load a file in one piece."""
    rows = _filled(megabytes)
    time.sleep(20)
    return len(rows)


def collect_rows(megabytes: int) -> int:
    """Append to a list until the file ends."""
    rows = []
    for _ in range(0, megabytes, 10):
        rows.append(_filled(10))
        time.sleep(0.03)
    time.sleep(20)
    return len(rows)


def score_row(row: int, table: bytes) -> int:
    """Look a row up in a table that came as an argument."""
    return row + len(table)


def decode_frame(frame: int, megabytes: int = 12) -> int:
    """Decode a frame, and keep it for the next time."""
    _frames.append(_filled(megabytes))
    time.sleep(0.1)
    return frame


def warm_up_model(megabytes: int) -> int:
    """Keep a model in memory for later tasks."""
    _frames.append(_filled(megabytes))
    return megabytes


def make_chunk(megabytes: int, seed: int) -> bytes:
    """Return a chunk."""
    return seed.to_bytes(4, "big") * (megabytes * MB // 4)


def merge_chunks(chunks: list[bytes]) -> int:
    """Merge all chunks in one task."""
    return sum(map(len, chunks))


# ------------------------------------------------------------------------------ waiting for others


def child(number: int) -> int:
    """Do a part of the work."""
    return number + 1


def parent(number: int) -> int:
    """Submit a part of the work and wait for it, holding the thread."""
    return int(get_client().submit(child, number, key=f"child-{number}").result())


def update_database(name: str, mark: str, seconds: float) -> str:
    """Work under a lock."""
    with Lock(name):
        Path(mark).touch()
        time.sleep(seconds)
    return "updated"


def consume(name: str) -> object:
    """Take one item from a queue."""
    return Queue(name).get()


def read_setting(name: str) -> object:
    """Read a variable."""
    return Variable(name).get()


def wait_for_start(name: str) -> object:
    """Wait for an event."""
    return Event(name).wait()


# ------------------------------------------------------------------------------------- own errors


def divide(left: int, right: int) -> float:
    """Divide."""
    return left / right


def check_total(total: int) -> int:
    """Check a sum that cannot be right."""
    assert total > 0, "the total must be positive"
    return total


def look_up(name: str) -> int:
    """Look up a name."""
    return {"north": 1, "south": 2}[name]


def allocate_everything() -> int:
    """Ask for more memory than there are addresses."""
    return len(bytearray(10**15))


def write_report(folder: str, megabytes: int) -> str:
    """Write a file."""
    Path(folder, "report.bin").write_bytes(bytes(megabytes * MB))
    return folder


def price(amount: float) -> float:
    """Price with a module that is imported here."""
    return float(importlib.import_module("pricing_rules").price(amount))


def price_with_discount(amount: float) -> float:
    """Price with a function that only the newer release of the module has."""
    from pricing_rules import discount  # type: ignore[import-not-found]

    return float(discount(amount))


def query_in_threads() -> list[object]:
    """Use one SQLite connection in several threads."""
    connection = sqlite3.connect(":memory:")
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda number: connection.execute("select ?", (number,)).fetchone(), range(8)))


def write_grid(name: str) -> None:
    """Write a netCDF file."""
    import netCDF4

    with netCDF4.Dataset(name, "w") as file:
        file.createDimension("x", 200_000)
        file.createVariable("heat", "f8", ("x",), zlib=True)[:] = range(200_000)


def read_grid(name: str, step: int) -> float:
    """Read a part of a netCDF file."""
    import netCDF4

    with netCDF4.Dataset(name) as file:
        return float(file.variables["heat"][step * 10 : step * 10 + 90_000].sum())


def simulate_in_pool() -> list[int]:
    """Spread work over processes, inside a task."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(child, range(4))


def run_solver() -> None:
    """Run a program that is killed."""
    subprocess.run(["/bin/sh", "-c", "kill -9 $$"], check=True)


# -------------------------------------------------------------------------------- ends of processes


def allow_no_failure(dask_scheduler: object) -> None:
    """Have Dask give up a task after its first death."""
    dask_scheduler.allowed_failures = 0  # type: ignore[attr-defined]


class Node:
    """One link of a chain."""

    def __init__(self, below: Node | None) -> None:
        self.below = below

    def __repr__(self) -> str:
        return f"<{self.below!r}>"


def show_tree(depth: int) -> int:
    """Show a deep tree, with a recursion limit that never raises."""
    sys.setrecursionlimit(10**8)
    tree = None
    for _ in range(depth):
        tree = Node(tree)
    return len(repr(tree))


def time_out() -> None:
    """Wait in vain for something that is no part of the cluster."""
    raise TimeoutError("the database is slow")


class Counter:
    """An actor."""

    def __init__(self) -> None:
        self.count = 0

    def increment(self) -> int:
        """Count one more."""
        self.count += 1
        return self.count
