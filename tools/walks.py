"""How many modules of the package three walks pass through, from what is known to what is said.

    python tools/walks.py            # print the modules of each walk, in the order of the first call
    python tools/walks.py --check    # and fail if a walk passes through more than its limit

log
    ``explain`` gets the text of a log, and returns the diagnosis.
exception
    On a cluster with the recorder, ``explain`` gets a `KilledWorker` and its client in the ``except`` block,
    and returns the diagnosis.
recorded death
    A worker with the recorder dies, and nanny and scheduler record it, until four seconds after its task failed.

A module counts if one of its functions runs, also if that happens while another module is imported. Code at its
top level and the bodies of classes do not count. All threads of the process that calls ``explain`` are traced;
the scheduler and the nannies run there too, but no worker. Each walk has a process of its own, where nothing is
loaded and cached yet. The text of a diagnosis, which ``str`` makes, is no part of a walk. The second and the third
number may differ by a few between runs, because the recorder works while ``explain`` does.
"""

from __future__ import annotations

import argparse
import inspect
import multiprocessing
import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Self

import dask.config
from distributed import Client, KilledWorker, LocalCluster

import workerdiag

ROOT = Path(__file__).parents[1]
PACKAGE = Path(workerdiag.__file__).parent
LOG = ROOT / "docs" / "samples" / "worker.log"

#: Walk -> the most modules that it may pass through.
LIMITS: Mapping[str, int] = {"log": 58, "exception": 108, "recorded death": 25}
#: After a death: the nanny reports it, its next worker looks for other boxes, and the dashboard gets the death.
_RECORDING_S = 4.0
#: A traced call is slow; no source is to be left out for that.
_TIMEOUT = "60s"
_NO_FUNCTIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


class Trace:
    """Notes which modules of a package run while it is recording, in this thread and in those started since.

    Attributes:
        modules: Paths below the package's folder, in the order of the first call.
    """

    def __init__(self, package: Path) -> None:
        self._folder = f"{package}{os.sep}"
        self._is_recording = False
        #: Files that need no second look.
        self._decided: set[str] = set()
        self.modules: dict[str, None] = {}  # a set that keeps the order; threads may add the same

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        threading.settrace(self._before)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the calls meanwhile."""
        self._is_recording = True
        try:
            yield
        finally:
            self._is_recording = False

    def _on_call(self, frame: FrameType, _event: str, _argument: object) -> None:
        """Note a call; returns None, so that the lines of the function are not traced."""
        code = frame.f_code
        if code.co_filename in self._decided or not self._is_recording:
            return
        is_ours = code.co_filename.startswith(self._folder)
        is_function = code.co_flags & inspect.CO_OPTIMIZED and code.co_name not in _NO_FUNCTIONS
        if is_ours and is_function:
            self.modules[Path(code.co_filename).relative_to(self._folder).as_posix()] = None
        if is_function or not is_ours:
            self._decided.add(code.co_filename)


def walk_of_log() -> list[str]:
    """Return the modules between the text of a log and its diagnosis."""
    explain, log = workerdiag.explain, workerdiag.LogText(LOG.read_text(encoding="utf-8"))
    with Trace(PACKAGE) as trace, trace.recording():
        explain(logs=[log])
    return [*trace.modules]


def walk_of_exception() -> list[str]:
    """Return the modules between an exception with its client and the diagnosis."""
    explain = workerdiag.explain
    with Trace(PACKAGE) as trace, recording_cluster() as client:
        problem = kill_worker(client)
        with trace.recording():
            explain(problem, client, timeout=_TIMEOUT)
    return [*trace.modules]


def walk_of_recorded_death() -> list[str]:
    """Return the modules between a worker's death and its record on the scheduler."""
    with Trace(PACKAGE) as trace, recording_cluster() as client, trace.recording():
        kill_worker(client)
        time.sleep(_RECORDING_S)
    return [*trace.modules]


@contextmanager
def recording_cluster() -> Iterator[Client]:
    """A cluster of two workers with the recorder, whose tasks fail at the first death of a worker."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        workerdiag.install(client)
        yield client


def kill_worker(client: Client) -> KilledWorker:
    """Let a task kill its worker, and return what Dask raises for it."""
    try:
        client.submit(signal.raise_signal, signal.SIGKILL).result()
    except KilledWorker as problem:
        return problem
    raise AssertionError("the worker survived SIGKILL")


WALKS: Mapping[str, Callable[[], list[str]]] = {
    "log": walk_of_log,
    "exception": walk_of_exception,
    "recorded death": walk_of_recorded_death,
}


def in_process_of_its_own(walk: Callable[[], list[str]]) -> list[str]:
    """Call *walk* where nothing is loaded yet."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=silence_standard_error) as pool:
        return pool.submit(walk).result()


def silence_standard_error() -> None:
    """Drop what the cluster logs; if a file got it, the recorder would read it for last words."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the walks; exit status 1 if asked to check and one passes through too many modules."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if a walk passes its limit")
    check = parser.parse_args(arguments).check
    is_over = False
    for name, walk in WALKS.items():
        modules = in_process_of_its_own(walk)
        is_over |= len(modules) > LIMITS[name]
        print(f"{name}: {len(modules)} modules, at most {LIMITS[name]}")
        print(textwrap.indent(textwrap.fill(" ".join(modules), 104, break_long_words=False), "    "))
    return int(check and is_over)


if __name__ == "__main__":
    raise SystemExit(main())
