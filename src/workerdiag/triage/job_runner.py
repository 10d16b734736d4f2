"""
Jobs on the workers of a Dask cluster, so that none is lost, whichever worker dies.

Each job is bound to one worker: if that dies, Dask does not take the job to the next one. The job is then
a suspect, and is tried again when all others are done, alone in a process of its own with a memory limit.
"""

from __future__ import annotations

import itertools
import queue
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from attrs import frozen

from workerdiag.deadline import monotonic_s
from workerdiag.errors import TriageError, describe_error
from workerdiag.model.dask import Method
from workerdiag.triage.isolated_process import run_isolated

if TYPE_CHECKING:
    from distributed import Client

#: Below whatever else the cluster has to do (distributed: the default is 0, larger goes first).
PRIORITY: Final = -100
#: The list of workers is asked for this often, in seconds.
_LOOK_S = 2.0
#: Without any worker for this long, in seconds, it ends.
_PATIENCE_S = 300.0
#: A job that takes longer, in seconds, hangs: 256 MiB take a minute where storage is slow.
_JOB_S = 3600.0

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
    job: _J
    worker: str
    since_s: float


class JobRunner(Generic[_J]):
    """
    Runs a function for each of many jobs.

    Args:
        client: Of the cluster.
        given: What the function gets for a job, made when the job is sent.
        share: Of each worker's threads, at least one, that may be busy with jobs.
        memory_bytes: What a suspect's process may have.
    """

    _numbers = itertools.count()

    def __init__(
        self, client: Client, given: Callable[[_J], object], *, share: float, memory_bytes: int
    ) -> None:
        self._client: Any = client  # most of its methods have no types
        self._given = given
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
        suspects: deque[_J] = deque()
        try:
            yield from self._run_all(function, deque(jobs), arguments, suspects, each_worker=None)
            while suspects:  # one at a time, so that each is judged by itself
                again: deque[_J] = deque()
                job = suspects.popleft()
                alone = (function, self._memory_bytes, _JOB_S, *arguments)
                yield from self._run_all(run_isolated, deque([job]), alone, again, each_worker=1)
                for lost in again:
                    yield Lost(lost, "its worker died twice, also when it was read in a process of its own")
        finally:
            for future in self._running:
                with suppress(Exception):
                    future.cancel()
            self._running.clear()
            self._busy.clear()

    def _run_all(
        self,
        function: Method,
        jobs: deque[_J],
        arguments: tuple[object, ...],
        suspects: deque[_J],
        *,
        each_worker: int | None,
    ) -> Iterator[Done[_J] | Lost[_J]]:
        self._looked_s = float("-inf")
        free: Sequence[str] = ()
        while jobs or self._running:
            if monotonic_s() - self._looked_s >= _LOOK_S:
                suspects += self._look(each_worker)
                free = list(self._slots)
            self._submit(function, jobs, arguments, free)
            free = ()
            try:
                future = self._ended.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            running = self._take(future)
            if running is None:
                continue  # it was given up
            free = (running.worker,)
            ended = self._result(future, running.job)
            future.release()
            if ended is None:
                suspects.append(running.job)
            else:
                yield ended

    def _take(self, future: object) -> _Running[_J] | None:
        running = self._running.pop(future, None)
        if running is not None:
            self._busy[running.worker] -= 1
        return running

    def _look(self, each_worker: int | None) -> list[_J]:
        """
        Learn which workers there are. Returns jobs of workers that are gone, and those that hang.
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
        return [running.job for future in lost if (running := self._take(future)) is not None]

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
        jobs: deque[_J],
        arguments: tuple[object, ...],
        workers: Sequence[str],
    ) -> None:
        """
        Send jobs to those of the *workers* that are not busy, to each in turn.
        """
        while workers and jobs:
            workers = [each for each in workers if self._busy[each] < self._slots.get(each, 0)]
            for worker in workers[: len(jobs)]:
                job = jobs.popleft()
                future = self._client.submit(
                    function,
                    self._given(job),
                    *arguments,
                    key=f"workerdiag-triage-{id(self)}-{next(self._numbers)}",
                    workers=[worker],
                    allow_other_workers=False,
                    priority=PRIORITY,
                    retries=0,
                    pure=False,
                )
                self._running[future] = _Running(job, worker, monotonic_s())
                self._busy[worker] += 1
                future.add_done_callback(self._ended.put)

    def _result(self, future: Any, job: _J) -> Done[_J] | Lost[_J] | None:
        """
        How a job ended; None if its worker died.
        """
        if future.status == "finished":
            try:
                return Done(job, future.result(timeout=_LOOK_S * 30))
            except Exception:  # noqa: BLE001  its worker died with the result
                return None
        if future.status != "error":
            return None
        problem = future.exception()
        if type(problem).__name__ == "KilledWorker":
            return None
        if isinstance(problem, ImportError) and (problem.name or "").partition(".")[0] == "workerdiag":
            raise TriageError(f"the workers cannot import workerdiag: {describe_error(problem)}", INSTALL)
        if isinstance(problem, TriageError):
            return Lost(job, problem.why)
        return Lost(job, describe_error(problem) if problem is not None else "it failed")


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
