"""
Jobs on the workers of a Dask cluster, so that none is lost, whichever worker dies.

Small jobs go in batches. Each batch is bound to one worker: if that dies, Dask does not take the batch to the
next one. Its jobs are then suspects, and are tried again when all others are done, one after the other in a
process of their own with a memory limit.
"""

from __future__ import annotations

import itertools
import queue
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from attrs import frozen

from workerdiag.deadline import monotonic_s
from workerdiag.errors import TriageError, describe_error
from workerdiag.model.dask import Method
from workerdiag.triage.batches import Failed, cut_batches, run_batch
from workerdiag.triage.isolated_process import run_isolated

if TYPE_CHECKING:
    from distributed import Client

#: Below whatever else the cluster has to do (distributed: the default is 0, larger goes first).
PRIORITY: Final = -100
#: The list of workers is asked for this often, in seconds.
_LOOK_S = 2.0
#: Without any worker for this long, in seconds, it ends.
_PATIENCE_S = 300.0
#: A job, and a batch, that takes longer, in seconds, hangs: 256 MiB take a minute where storage is slow.
_JOB_S = 3600.0
#: Of a batch of suspects the same for each process, so that the others have their time beside one that hangs.
_SUSPECTS_S = _JOB_S / 4

_J = TypeVar("_J")


@frozen
class Done(Generic[_J]):
    """
    A job that returned.
    """

    job: _J
    result: Any


@frozen
class Lost(Generic[_J]):
    """
    A job that no process survived, or that could not be run.
    """

    job: _J
    reason: str


@frozen
class _Running(Generic[_J]):
    batch: tuple[_J, ...]
    worker: str
    since_s: float


class JobRunner(Generic[_J]):
    """
    Runs a function for each of many jobs.

    Args:
        client: Of the cluster.
        given: What the function gets for a job, made when the job is sent.
        batch_share: The part of a full batch that a job takes by itself: 1 or more fills it.
        share: Of each worker's threads, at least one, that may be busy with jobs.
        memory_bytes: What a suspect's process may have.
    """

    _numbers = itertools.count()

    def __init__(
        self,
        client: Client,
        given: Callable[[_J], object],
        batch_share: Callable[[_J], float],
        *,
        share: float,
        memory_bytes: int,
    ) -> None:
        self._client: Any = client  # most of its methods have no types
        self._given = given
        self._batch_share = batch_share
        self._share = share
        self._memory_bytes = memory_bytes
        self._slots: Mapping[str, int] = {}
        self._looked_s = float("-inf")
        self._ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._running: dict[Any, _Running[_J]] = {}
        self._busy: Counter[str] = Counter()

    def run(self, function: Method, jobs: Iterable[_J], *arguments: object) -> Iterator[Done[_J] | Lost[_J]]:
        """
        What became of each job, as they end: every one comes once.

        Args:
            function: Called on a worker with what is given for a job, and *arguments*.
            jobs: All.
            arguments: Of each call, behind the first.

        Raises:
            TriageError: There are no workers, or workerdiag is not installed on them.
        """
        suspects: list[tuple[_J, ...]] = []
        batches = cut_batches(jobs, self._batch_share, lambda: sum(self._slots.values()))
        try:
            yield from self._run_all(run_batch, batches, (function, *arguments), suspects, each_worker=None)
            while suspects:  # one batch at a time, and one job at a time of those
                batch = suspects.pop(0)
                seconds = _JOB_S if len(batch) == 1 else _SUSPECTS_S
                alone = (function, self._memory_bytes, seconds, *arguments)
                again: list[tuple[_J, ...]] = []
                yield from self._run_all(run_isolated, iter([batch]), alone, again, each_worker=1)
                if again and len(batch) > 1:
                    suspects += ((job,) for job in batch)
                elif again:
                    yield Lost(
                        batch[0], "its worker died twice, also when it was read in a process of its own"
                    )
        finally:
            for future in self._running:
                with suppress(Exception):
                    future.cancel()
            self._running.clear()
            self._busy.clear()

    def _run_all(
        self,
        function: Method,
        batches: Iterator[tuple[_J, ...]],
        arguments: tuple[object, ...],
        suspects: list[tuple[_J, ...]],
        *,
        each_worker: int | None,
    ) -> Iterator[Done[_J] | Lost[_J]]:
        self._looked_s = float("-inf")
        free: Sequence[str] = ()
        while True:
            if monotonic_s() - self._looked_s >= _LOOK_S:
                suspects += self._look(each_worker)
                free = list(self._slots)
            has_more = self._submit(function, batches, arguments, free)
            if not has_more and not self._running:
                return
            free = ()
            try:
                future = self._ended.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            running = self._take(future)
            if running is None:
                continue  # it was given up
            free = (running.worker,)
            ended = self._ended_jobs(future, running.batch)
            future.release()
            if ended is None:
                suspects.append(running.batch)
            else:
                yield from ended

    def _take(self, future: object) -> _Running[_J] | None:
        running = self._running.pop(future, None)
        if running is not None:
            self._busy[running.worker] -= 1
        return running

    def _look(self, each_worker: int | None) -> list[tuple[_J, ...]]:
        """
        Learn which workers there are. Returns batches of workers that are gone, and those that hang.
        """
        threads = self._threads()
        now_s = self._looked_s = monotonic_s()
        self._slots = {
            worker: each_worker or max(1, int(count * self._share)) for worker, count in threads.items()
        }
        lost = [
            future
            for future, running in self._running.items()
            if (running.worker not in threads and not future.done()) or now_s - running.since_s > _JOB_S
        ]
        for future in lost:
            future.cancel(force=True)
        return [running.batch for future in lost if (running := self._take(future)) is not None]

    def _threads(self) -> Mapping[str, int]:
        """
        Threads by worker; there may be none for a while.
        """
        until_s = monotonic_s() + _PATIENCE_S
        while True:
            if self._client.status != "running":
                raise TriageError(
                    "the connection to the scheduler is lost", "run the same again: it goes on from here"
                )
            threads: Mapping[str, int] = self._client.nthreads()
            if threads:
                return threads
            if monotonic_s() > until_s:
                raise TriageError(
                    f"the cluster has had no worker for {_PATIENCE_S:.0f} s",
                    "start workers and run the same again: it goes on from here",
                )
            with suppress(TimeoutError):
                self._client.wait_for_workers(1, timeout=_LOOK_S)

    def _submit(
        self,
        function: Method,
        batches: Iterator[tuple[_J, ...]],
        arguments: tuple[object, ...],
        workers: Sequence[str],
    ) -> bool:
        """
        Send batches to those of the *workers* that are not busy, to each in turn.

        Returns:
            Whether there may be more batches.
        """
        while workers := [each for each in workers if self._busy[each] < self._slots.get(each, 0)]:
            for worker in workers:
                batch = next(batches, None)
                if batch is None:
                    return False
                future = self._client.submit(
                    function,
                    [self._given(job) for job in batch],
                    *arguments,
                    key=f"workerdiag-triage-{id(self)}-{next(self._numbers)}",
                    workers=[worker],
                    allow_other_workers=False,
                    priority=PRIORITY,
                    retries=0,
                    pure=False,
                )
                self._running[future] = _Running(batch, worker, monotonic_s())
                self._busy[worker] += 1
                future.add_done_callback(self._ended.put)
        return True

    def _ended_jobs(self, future: Any, batch: Sequence[_J]) -> list[Done[_J] | Lost[_J]] | None:
        """
        How the jobs of a batch ended; None if their worker died.
        """
        if future.status == "finished":
            try:
                results = future.result(timeout=_LOOK_S * 30)
            except Exception:  # noqa: BLE001  its worker died with the result
                return None
            return [
                Lost(job, result.reason) if isinstance(result, Failed) else Done(job, result)
                for job, result in zip(batch, results, strict=True)
            ]
        if future.status != "error":
            return None
        problem = future.exception()
        if type(problem).__name__ == "KilledWorker" or isinstance(problem, MemoryError):
            return None
        if isinstance(problem, ImportError) and (problem.name or "").partition(".")[0] == "workerdiag":
            raise TriageError(f"the workers cannot import workerdiag: {describe_error(problem)}", INSTALL)
        reason = describe_error(problem) if problem is not None else "it failed"
        return [Lost(job, reason) for job in batch]


#: What to do where workers lack the package.
INSTALL: Final = 'install the same version there, e.g. with dask.distributed.PipInstall(["workerdiag"])'


def check_workers(client: Client) -> None:
    """
    Check that each worker can import workerdiag.

    Raises:
        TriageError: Some cannot; it names the first few.
    """
    from importlib.util import find_spec

    found = client.run(find_spec, "workerdiag", on_error="return")
    lacking = sorted(worker for worker, spec in found.items() if spec is None)
    if lacking:
        names = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
        raise TriageError(f"workerdiag is not installed on {names}", INSTALL)
