"""Run jobs on the workers of a Dask cluster without losing one, whichever worker dies.

Small jobs are sent in batches. Each batch is bound to one worker: if that worker dies, Dask does not move the
batch to the next one. Its jobs are then suspects. They are retried after all other jobs, one at a time in a
separate process with a memory limit, so that whatever kills it kills nothing else.
"""

from __future__ import annotations

import io
import itertools
import os
import pickle
import queue
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from workerdiag.deadline import monotonic_s
from workerdiag.errors import TriageError, describe_error, error_text
from workerdiag.guard import guarded
from workerdiag.model.dask import Method
from workerdiag.model.signals import signal_name
from workerdiag.values import define, field, frozen

if TYPE_CHECKING:
    from distributed import Client

#: Interval between requests for the list of workers, in seconds.
_LOOK_S = 2.0
#: Time-out without any worker, in seconds.
_PATIENCE_S = 300.0
#: A job or batch hangs if it takes longer than this, in seconds: 256 MiB take a minute on slow storage.
_JOB_S = 3600.0

_J = TypeVar("_J")


@frozen
class Failed:
    """A job that failed, killed each of its processes, or could not run."""

    reason: str


@frozen
class _Running(Generic[_J]):
    batch: tuple[_J, ...]
    worker: str
    since_s: float


@define(eq=False)
class JobRunner(Generic[_J]):
    """Runs a function for each of many jobs."""

    _client: Any  # a client of the cluster; most of its methods have no types
    #: Returns what the function gets for a job; called when the job is sent.
    _given: Callable[[_J], object]
    #: Returns the fraction of a full batch that one job takes; 1 or more fills a batch.
    _batch_share: Callable[[_J], float]
    #: The fraction of each worker's threads, at least one thread, that may be busy with jobs.
    _share: float = field(kw_only=True)
    #: The memory limit of a suspect's process.
    _memory_bytes: int = field(kw_only=True)
    _slots: Mapping[str, int] = field(factory=dict, init=False)
    _looked_s: float = field(default=float("-inf"), init=False)
    _ended: queue.SimpleQueue[Any] = field(factory=queue.SimpleQueue, init=False)
    _running: dict[Any, _Running[_J]] = field(factory=dict, init=False)
    _numbers: Iterator[int] = field(factory=itertools.count, init=False)

    def run(self, function: Method, jobs: Iterable[_J], *arguments: object) -> Iterator[tuple[_J, Any]]:
        """Yield each job with the *function* of what is given for it, or `Failed`; raises TriageError."""
        suspects: list[tuple[_J, ...]] = []
        batches = cut_batches(jobs, self._batch_share, lambda: sum(self._slots.values()))
        try:
            yield from self._run_all(run_batch, batches, (function, *arguments), suspects, each_worker=None)
            while suspects:  # one batch at a time, and one job of it at a time
                batch = suspects.pop(0)
                seconds = _JOB_S if len(batch) == 1 else _JOB_S / 4  # one that hangs leaves time for the others
                alone = (function, self._memory_bytes, seconds, *arguments)
                again: list[tuple[_J, ...]] = []
                yield from self._run_all(run_isolated, iter([batch]), alone, again, each_worker=1)
                if again and len(batch) > 1:
                    suspects += ((job,) for job in batch)
                elif again:
                    why = "its worker died twice, the second time with the job in a separate process"
                    yield batch[0], Failed(why)
        finally:
            for future in self._running:
                with suppress(Exception):
                    future.cancel()

    def _run_all(
        self,
        function: Method,
        batches: Iterator[tuple[_J, ...]],
        arguments: tuple[object, ...],
        suspects: list[tuple[_J, ...]],
        *,
        each_worker: int | None,
    ) -> Iterator[tuple[_J, Any]]:
        self._looked_s = float("-inf")
        while True:
            if monotonic_s() - self._looked_s >= _LOOK_S:
                suspects += self._look(each_worker)
            has_more = self._submit(function, batches, arguments)
            if not has_more and not self._running:
                return
            try:
                future = self._ended.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            running = self._running.pop(future, None)
            if running is None:
                continue  # already given up
            ended = self._ended_jobs(future, running.batch)
            future.release()
            if ended is None:
                suspects.append(running.batch)
            else:
                yield from ended

    def _look(self, each_worker: int | None) -> list[tuple[_J, ...]]:
        """Update the list of workers. Return the batches of workers that are gone, and batches that hang."""
        threads = self._threads()
        now_s = self._looked_s = monotonic_s()
        self._slots = {worker: each_worker or max(1, int(count * self._share)) for worker, count in threads.items()}
        lost = [
            future
            for future, running in self._running.items()
            if (running.worker not in threads and not future.done()) or now_s - running.since_s > _JOB_S
        ]
        for future in lost:
            future.cancel(force=True)
        return [self._running.pop(future).batch for future in lost]

    def _threads(self) -> Mapping[str, int]:
        """Return the number of threads by worker. Wait for a while if there are no workers."""
        until_s = monotonic_s() + _PATIENCE_S
        while True:
            if self._client.status != "running":
                raise TriageError(
                    "the connection to the scheduler is lost", "run the same again: it resumes from here"
                )
            threads: Mapping[str, int] = self._client.nthreads()
            if threads:
                return threads
            if monotonic_s() > until_s:
                raise TriageError(
                    f"the cluster has had no worker for {_PATIENCE_S:.0f} s",
                    "start workers and run the same again: it resumes from here",
                )
            with suppress(TimeoutError):
                self._client.wait_for_workers(1, timeout=_LOOK_S)

    def _submit(self, function: Method, batches: Iterator[tuple[_J, ...]], arguments: tuple[object, ...]) -> bool:
        """Send batches to the workers that are not busy, in turn. Returns whether more may be left."""
        busy = Counter(each.worker for each in self._running.values())
        turns = range(max(self._slots.values(), default=0))
        free = [worker for turn in turns for worker, slots in self._slots.items() if busy[worker] + turn < slots]
        for worker in free:
            batch = next(batches, None)
            if batch is None:
                return False
            future = self._client.submit(
                function,
                [self._given(job) for job in batch],
                *arguments,
                key=f"workerdiag-triage-{id(self)}-{next(self._numbers)}",
                workers=[worker],
                priority=-100,  # below other work of the cluster: the default is 0, larger goes first
                retries=0,
                pure=False,
            )
            self._running[future] = _Running(batch, worker, monotonic_s())
            future.add_done_callback(self._ended.put)
        return True

    def _ended_jobs(self, future: Any, batch: Sequence[_J]) -> list[tuple[_J, Any]] | None:
        """Return the jobs of a batch with their results, or None if their worker died."""
        if future.status == "finished":
            with guarded("fetching the results of a batch") as fetching:
                results = future.result(timeout=_LOOK_S * 30)
            # else its worker died with the result
            return list(zip(batch, results, strict=True)) if fetching.problem is None else None
        if future.status != "error":
            return None
        problem = future.exception()
        if type(problem).__name__ == "KilledWorker" or isinstance(problem, MemoryError):
            return None
        if isinstance(problem, ImportError) and (problem.name or "").partition(".")[0] == "workerdiag":
            raise TriageError(f"the workers cannot import workerdiag: {describe_error(problem)}", INSTALL)
        reason = describe_error(problem) if problem is not None else "it failed"
        return [(job, Failed(reason)) for job in batch]


INSTALL: Final = 'install the same version there, e.g. with dask.distributed.PipInstall(["workerdiag"])'


def check_workers(client: Client) -> None:
    """Raise TriageError, which names the first few, if workers cannot import workerdiag."""
    from importlib.util import find_spec

    found = client.run(find_spec, "workerdiag", on_error="return")
    lacking = sorted(worker for worker, spec in found.items() if spec is None)
    if lacking:
        names = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
        raise TriageError(f"workerdiag is not installed on {names}", INSTALL)


#: A batch has at most this many jobs: a small log takes 5 ms, a Dask task from submit to result 10 to 20 ms.
MAX_JOBS: Final = 64


def cut_batches(
    jobs: Iterable[_J], share: Callable[[_J], float], threads: Callable[[], int]
) -> Iterator[tuple[_J, ...]]:
    """Yield all jobs in batches, of which *share* says what a job takes and *threads* how many run at a time."""
    left = deque(jobs)
    while left:
        # Jobs that run when the client dies are read again, and a thread that ends early waits for the others: both
        # stay under 4 %.
        most = min(MAX_JOBS, max(1, len(left) // (25 * threads())))
        batch = [left.popleft()]
        filled = share(batch[0])
        while left and len(batch) < most and (filled := filled + share(left[0])) <= 1:
            batch.append(left.popleft())
        yield tuple(batch)


def run_batch(
    batch: Sequence[object], function: Callable[..., object], *arguments: object
) -> list[object | Failed]:
    """Return ``function(job, *arguments)`` for each job, or why it failed; raises MemoryError."""
    return [run_job(job, function, *arguments) for job in batch]


def run_job(job: object, function: Callable[..., object], *arguments: object) -> object | Failed:
    """Return ``function(job, *arguments)``, or why it failed; raises MemoryError, perhaps because of other jobs."""
    try:
        return function(job, *arguments)
    except MemoryError:
        raise
    except TriageError as problem:
        return Failed(problem.why)
    except Exception as problem:  # noqa: BLE001  files and stores raise anything
        return Failed(describe_error(problem))


_CHILD = "from workerdiag.triage.jobs import serve; serve()"


def run_isolated(
    batch: Sequence[object],
    function: Callable[..., object],
    memory_bytes: int,
    timeout_s: float,
    *arguments: object,
) -> list[object | Failed]:
    """Return ``function(job, *arguments)`` for each job, called in a separate process.

    The process runs the jobs in order. If it ends without the result of a job (by a signal, out of memory or
    out of time), a new process starts with that job. The job has failed if that process ends too. Both limits
    are those of one process.
    """
    results: list[object | Failed] = []
    while len(results) < len(batch):
        given = pickle.dumps((memory_bytes, function, batch[len(results) :], arguments))
        done, end = _run_process(given, timeout_s)
        results += done or [Failed(f"the process that read it {end}")]
    return results


def _run_process(given: bytes, timeout_s: float) -> tuple[list[object], str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    try:
        ended = subprocess.run(  # noqa: S603  our own module
            [sys.executable, "-c", _CHILD],
            input=given,
            capture_output=True,
            timeout=timeout_s,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired as problem:
        return _results_in(problem.stdout or b""), f"took more than {timeout_s:.0f} s"
    if ended.returncode < 0:
        name = signal_name(-ended.returncode) or "a signal"
        return _results_in(ended.stdout), f"was killed by {name} ({-ended.returncode})"
    last = error_text(ValueError(ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]))[:200]
    return _results_in(ended.stdout), f"ended with status {ended.returncode}{last and f': {last}'}"


def _results_in(printed: bytes) -> list[object]:
    """Return the results that a process wrote completely."""
    stream = io.BytesIO(printed)
    results: list[object] = []
    with suppress(EOFError, pickle.UnpicklingError):  # it died while writing
        while True:
            results.append(pickle.load(stream))  # noqa: S301  our own process wrote it
    return results


def serve() -> None:
    """Serve in the separate process: call the function given on standard input, write the result of each job."""
    memory_bytes, function, batch, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301  our own process wrote it
    with suppress(ImportError):  # Windows
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    with os.fdopen(os.dup(1), "wb") as output:
        os.dup2(2, 1)  # libraries may print to standard output
        for job in batch:
            try:
                result = run_job(job, function, *arguments)
            except MemoryError:
                sys.exit("MemoryError")
            output.write(pickle.dumps(result))
            output.flush()
