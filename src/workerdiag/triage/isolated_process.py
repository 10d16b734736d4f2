"""Run jobs in a separate process with a memory limit, so that whatever kills it kills nothing else."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from signal import Signals

from workerdiag.errors import error_text
from workerdiag.triage.batches import Failed, run_job

_CHILD = "from workerdiag.triage.isolated_process import serve; serve()"


def run_isolated(
    batch: Sequence[object],
    function: Callable[..., object],
    memory_bytes: int,
    timeout_s: float,
    *arguments: object,
) -> list[object | Failed]:
    """Return ``function(job, *arguments)`` for each job, called in a separate process.

    The process runs the jobs in order. If it ends without the result of a job (by a signal, out of memory or
    out of time), a new process starts with that job. The job has failed if that process ends too.

    Args:
        batch: The jobs.
        function: Called with each job.
        memory_bytes: The memory limit of a process.
        timeout_s: The time limit of a process, in seconds.
        arguments: Further arguments of each call.
    """
    results: list[object | Failed] = []
    while len(results) < len(batch):
        given = pickle.dumps((memory_bytes, function, batch[len(results) :], arguments))
        done, end = _run_process(given, timeout_s)
        results += done or [Failed(f"the process that read it {end}")]
    return results


def _run_process(given: bytes, timeout_s: float) -> tuple[list[object], str]:
    """Return the results of one process, and how it ended."""
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
    return _results_in(ended.stdout), _end_of(ended)


def _results_in(printed: bytes) -> list[object]:
    """Return the results that a process wrote completely."""
    stream = io.BytesIO(printed)
    results: list[object] = []
    while True:
        try:
            results.append(pickle.load(stream))  # noqa: S301  our own process wrote it
        except (EOFError, pickle.UnpicklingError):  # it died while writing
            return results


def serve() -> None:
    """Serve in the separate process: call the function given on standard input, write the result of each job."""
    memory_bytes, function, batch, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301  our own process wrote it
    _limit_memory(memory_bytes)
    with os.fdopen(os.dup(1), "wb") as output:
        os.dup2(2, 1)  # libraries may print to standard output
        for job in batch:
            try:
                result = run_job(job, function, *arguments)
            except MemoryError:
                sys.exit("MemoryError")
            output.write(pickle.dumps(result))
            output.flush()


def _limit_memory(memory_bytes: int) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def _end_of(ended: subprocess.CompletedProcess[bytes]) -> str:
    if ended.returncode < 0:
        try:
            name = Signals(-ended.returncode).name
        except ValueError:
            name = "a signal"
        return f"was killed by {name} ({-ended.returncode})"
    last = error_text(ValueError(ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]))[:200]
    return f"ended with status {ended.returncode}" + (f": {last}" if last else "")
