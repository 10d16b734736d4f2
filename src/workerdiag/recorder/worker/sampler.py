"""A thread that notes once a second how a worker's process, its control group and its host are doing."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from workerdiag.procfs import find_memory_group
from workerdiag.recorder.box.writer import BoxWriter
from workerdiag.recorder.internals import workers

if TYPE_CHECKING:
    from workerdiag.model.dask import EventLoop, Worker

PERIOD_S = 1.0
#: Counting open files costs a look at each; the count changes slowly.
_FILES_EVERY = 5
_KIB = 1024


class Sampler(threading.Thread):
    """Samples until it is stopped; a daemon, so that no process waits for it.

    Args:
        worker: Read only, and only what any thread may read.
        box: What the samples are noted in.
        on_sample: Called once in each round.
    """

    def __init__(self, worker: Worker, box: BoxWriter, on_sample: Callable[[], None]) -> None:
        super().__init__(name="workerdiag recorder", daemon=True)
        self._worker = worker
        self._box = box
        self._on_sample = on_sample
        self._stopped = threading.Event()
        self._group = find_memory_group()
        self._loop = LoopProbe(worker.loop)
        self._files: int | None = None

    def run(self) -> None:
        """Sample at once, then once a second."""
        late_s, rounds = 0.0, 0
        while not self._stopped.is_set():
            with contextlib.suppress(Exception):  # a sample is lost, not the worker
                self._sample_once(rounds, late_s)
            rounds += 1
            asleep = monotonic()
            self._stopped.wait(PERIOD_S)
            late_s = max(0.0, monotonic() - asleep - PERIOD_S)

    def stop(self) -> None:
        """Stop sampling; returns at once."""
        self._stopped.set()

    def _sample_once(self, rounds: int, late_s: float) -> None:
        gil = workers.gil_contention(self._worker)
        self._box.lag(self._loop.lag_s(), _contention_share(late_s) if gil is None else gil)
        if rounds % _FILES_EVERY == 0:
            self._files = open_files()
        held, spilled = workers.held_bytes(self._worker)
        group = self._group.memory_counters() if self._group is not None else None
        self._box.sample(
            process_rss_bytes=rss_bytes(),
            managed_bytes=held,
            spilled_bytes=spilled,
            memory_limit_bytes=self._worker.memory_manager.memory_limit,
            cgroup_current_bytes=group.current_bytes if group else None,
            cgroup_limit_bytes=group.limit_bytes if group else None,
            cgroup_oom_kills=group.oom_kills if group else None,
            host_available_bytes=host_available_bytes(),
            open_files=self._files,
            open_files_limit=open_files_limit(),
            thread_count=threading.active_count(),
        )
        self._on_sample()


class LoopProbe:
    """Asks an event loop to answer, and measures how long that takes.

    Args:
        loop: A tornado ``IOLoop``, whose ``add_callback`` any thread may call.
    """

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._requested_at: float | None = None
        self._lag_s = 0.0

    def lag_s(self) -> float:
        """Seconds that the answer took last time, or that it is overdue by now; asks again."""
        requested_at = self._requested_at
        if requested_at is not None:
            return monotonic() - requested_at
        self._requested_at = monotonic()
        self._loop.add_callback(self._on_answer)
        return self._lag_s

    def _on_answer(self) -> None:
        if self._requested_at is not None:
            self._lag_s = monotonic() - self._requested_at
            self._requested_at = None


def _contention_share(late_s: float) -> float:
    """The share of the last period in which we wanted to run and could not.

    That is the GIL, or the processor: this thread cannot tell which.
    """
    return late_s / (PERIOD_S + late_s)


def rss_bytes() -> int | None:
    """Resident memory of this process (``man 5 proc``, statm); None if not known."""
    try:
        with Path("/proc/self/statm").open("rb") as file:
            return int(file.read(200).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def host_available_bytes() -> int | None:
    """Memory that the host could still give without swapping (``man 5 proc``, meminfo); None if not known."""
    try:
        with Path("/proc/meminfo").open("rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) * _KIB
    except (OSError, ValueError, IndexError):
        pass
    return None


def open_files() -> int | None:
    """File descriptors that this process has open; None if not known."""
    try:
        return sum(1 for _ in os.scandir("/proc/self/fd")) - 1  # without the one that lists
    except OSError:
        return None


def open_files_limit() -> int | None:
    """File descriptors that this process may have open (``man 2 getrlimit``); None if not known."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
