"""Samples a worker's memory: each second, more often while it rises, and what holds it near its limit.

One thread reads all, beside those of the tasks, and has the GIL for some hundredths of a millisecond each time.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from mmap import PAGESIZE
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from msgpack import packb

from workerdiag.procfs_and_cgroups import find_memory_group, host_available_bytes
from workerdiag.recorder import internals
from workerdiag.recorder.box.layout import CENSUS_BYTES
from workerdiag.recorder.large_objects import largest_objects

if TYPE_CHECKING:
    from tornado.ioloop import IOLoop

    from workerdiag.model.dask import Worker
    from workerdiag.recorder.box.writer import BoxWriter

PERIOD_S = 1.0

#: Seconds between two looks at the memory: as memory is far from its limit, as it is near, and as it rises.
_FAR_S, _NEAR_S, _RISING_S = 0.25, 0.08, 0.01
#: Between two looks it rises by more than this share of the limit; and between two samples.
_RISE, _STEP = 0.01, 1 / 32
#: Shares of the limit at which the largest objects are looked for; again only after it has fallen by this much.
MARKS, _FALL = (0.75, 0.85, 0.92), 0.1
#: Packages that are not noted.
_NOT_NOTED = frozenset({*sys.stdlib_module_names, "workerdiag"})
#: Looking for them takes at most so many seconds at first, and this share of the time after them.
_CENSUS_S, _CENSUS_SHARE = 0.1, 0.005


class Sampler(threading.Thread):
    """Samples until it is stopped; a daemon, so that no process waits for it. *on_sample* is called each round."""

    def __init__(self, worker: Worker, box: BoxWriter, on_sample: Callable[[], None]) -> None:
        super().__init__(name="workerdiag recorder", daemon=True)
        self._worker = worker
        self._box = box
        self._on_sample = on_sample
        self._memory = ProcessMemory()
        #: Free once it is to stop: waiting for a lock costs less than for an event.
        self._go_on = threading.Lock()
        self._go_on.acquire()
        self._group = find_memory_group()
        self._loop = LoopProbe(worker.loop)
        self._files: int | None = None
        #: How many modules were loaded when they were last noted.
        self._module_count = 0
        #: The lowest limit that ends the process, if there is one.
        self._limit_bytes: int | None = None
        #: Memory at the last look, and at the last sample.
        self._looked = self._sampled = ProcessBytes(0, 0)
        #: The highest mark that it is above, and processor seconds that looking for objects took so far.
        self._mark = self._census_s = 0.0
        self._began = monotonic()

    def run(self) -> None:
        """Sample at once, then once a second, and look at the memory in between."""
        rounds, due, late_s = 0, monotonic(), 0.0
        is_stopped = False
        while not is_stopped:
            wait_s = _FAR_S
            with contextlib.suppress(Exception):  # a sample is lost, not the worker
                if monotonic() >= due:
                    due = monotonic() + PERIOD_S
                    self._sample_once(rounds, late_s)
                    rounds, late_s = rounds + 1, 0.0
                wait_s = self._look()
            asleep, wait_s = monotonic(), min(wait_s, max(0.0, due - monotonic()))
            is_stopped = self._go_on.acquire(timeout=wait_s)
            late_s = max(late_s, monotonic() - asleep - wait_s)
        self._memory.close()

    def stop(self) -> None:
        """Stop sampling; returns at once."""
        with contextlib.suppress(RuntimeError):  # it was stopped before
            self._go_on.release()

    def _sample_once(self, rounds: int, late_s: float) -> None:
        gil = internals.gil_contention(self._worker)
        if gil is None:  # the share of time in which we wanted to run and could not, for the GIL or the processor
            gil = late_s / (PERIOD_S + late_s)
        self._box.lag(self._loop.lag_s(), gil)
        if rounds % 5 == 0:  # counting them costs a look at each
            self._files = open_files()
        if len(sys.modules) != self._module_count:
            self._module_count = len(sys.modules)
            self._box.identify(modules=loaded_packages(list(sys.modules)))
        self._sample(self._memory.read())
        self._on_sample()

    def _sample(self, process: ProcessBytes) -> None:
        held, spilled = internals.held_bytes(self._worker)
        group = self._group.memory_counters() if self._group is not None else None
        limit_bytes = self._worker.memory_manager.memory_limit
        self._box.sample(
            process_rss_bytes=process.rss,
            managed_bytes=held,
            spilled_bytes=spilled,
            memory_limit_bytes=limit_bytes,
            cgroup_current_bytes=group.current_bytes if group else None,
            cgroup_limit_bytes=group.limit_bytes if group else None,
            cgroup_oom_kills=group.oom_kills if group else None,
            host_available_bytes=host_available_bytes(),
            open_files=self._files,
            open_files_limit=open_files_limit(),
            thread_count=threading.active_count(),
            process_data_bytes=process.data,
        )
        limits = (limit_bytes, group.limit_bytes if group else None)
        self._limit_bytes = min((each for each in limits if each), default=None)
        self._sampled = process

    def _look(self) -> float:
        """Sample if memory has risen, look for what holds it at each mark, and return when to look again."""
        limit, process, before = self._limit_bytes, self._memory.read(), self._looked
        if limit is None:
            return _FAR_S
        self._looked = process
        if process.rss - self._sampled.rss >= _STEP * limit or process.data - self._sampled.data >= _STEP * limit:
            self._sample(process)
        share = process.rss / limit
        reached = max((mark for mark in MARKS if share >= mark), default=0.0)
        if reached > self._mark and self._census_s <= _CENSUS_S + _CENSUS_SHARE * (monotonic() - self._began):
            self._mark = reached
            self._note_objects(process.rss, limit)
        elif share < self._mark - _FALL:
            self._mark = reached
        if max(process.rss - before.rss, process.data - before.data) >= _RISE * limit:
            return _RISING_S
        filled_in_s = (MARKS[0] * limit - process.rss) / 3e9  # bytes that a process can fill in a second
        return min(max(filled_in_s, _NEAR_S), _FAR_S)

    def _note_objects(self, rss: int, limit: int) -> None:
        began = time.thread_time()  # waiting for the GIL costs nobody anything
        objects, is_complete = largest_objects(internals.running_threads(self._worker), rss)
        self._box.census(encode_census((time.time(), rss, limit, is_complete), objects))
        self._census_s += time.thread_time() - began


def loaded_packages(modules: Sequence[str]) -> str:
    """The packages that are loaded beside the standard library, those with the most modules first.

    A part of a package counts as one where ten modules are loaded of it, as importing the whole may not load it.
    """
    names = [each for each in modules if each.partition(".")[0] not in _NOT_NOTED and not each.startswith("_")]
    counts = Counter(each.partition(".")[0] for each in names)
    counts.update(".".join(each.split(".")[:2]) for each in names if "." in each)
    known = set(names)
    noted = (each for each, count in counts.most_common() if each in known and ("." not in each or count >= 10))
    return " ".join(noted)


def encode_census(numbers: tuple[float, ...], objects: Sequence[object]) -> bytes:
    """What `MemoryCensus` has, with as many of the objects as there is room for."""
    data: bytes = packb((*numbers, objects), unicode_errors="replace")
    return data if len(data) <= CENSUS_BYTES or not objects else encode_census(numbers, objects[:-1])


class ProcessBytes(NamedTuple):
    """Memory of this process: resident, and what it may write to, touched or not (``VmData``)."""

    rss: int
    data: int


class LoopProbe:
    """Asks an event loop to answer (``add_callback``, which any thread may call) and measures how long it takes."""

    def __init__(self, loop: IOLoop) -> None:
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


class ProcessMemory:
    """Reads the memory of this process, often (``man 5 proc``, statm); the file is open as long as this lives."""

    def __init__(self) -> None:
        self._file = io.FileIO("/proc/self/statm")

    def close(self) -> None:
        """Read no more."""
        self._file.close()

    def read(self) -> ProcessBytes:
        """What the process has now."""
        pages = os.pread(self._file.fileno(), 200, 0).split()
        return ProcessBytes(int(pages[1]) * PAGESIZE, int(pages[5]) * PAGESIZE)


def open_files() -> int:
    """File descriptors that this process has open."""
    return sum(1 for _ in os.scandir("/proc/self/fd")) - 1  # without the one that lists


def open_files_limit() -> int:
    """File descriptors that this process may have open (``man 2 getrlimit``)."""
    import resource  # Windows has none, and no boxes

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
