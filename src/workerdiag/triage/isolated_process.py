"""
Jobs in a process of their own with a memory limit, so that what kills it kills nothing else.
"""

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
    """
    What ``function(job, *arguments)`` returns for each job in a process that is not this one.

    The process does one job after the other. Where it ends without the result of a job, by a signal, for want
    of memory or of time, the next process begins with that job: it has failed if that one, too, ends.

    Args:
        batch: The jobs.
        function: Is called with each.
        memory_bytes: What a process may have.
        timeout_s: How long a process may take, in seconds.
        arguments: Of each call, behind the first.
    """
    results: list[object | Failed] = []
    while len(results) < len(batch):
        given = pickle.dumps((memory_bytes, function, batch[len(results) :], arguments))
        done, end = _run_process(given, timeout_s)
        results += done or [Failed(f"the process that read it {end}")]
    return results


def _run_process(given: bytes, timeout_s: float) -> tuple[list[object], str]:
    """
    The results of one process, and how it ended.
    """
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
    """
    The results that a process wrote whole.
    """
    stream = io.BytesIO(printed)
    results: list[object] = []
    while True:
        try:
            results.append(pickle.load(stream))  # noqa: S301  our own process wrote it
        except (EOFError, pickle.UnpicklingError):  # it was ended while it wrote
            return results


def serve() -> None:
    """
    The other side: call the function that standard input names, write what it returns for each job.
    """
    memory_bytes, function, batch, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301  our own process wrote it
    _limit_memory(memory_bytes)
    with os.fdopen(os.dup(1), "wb") as output:
        os.dup2(2, 1)  # libraries print what they like
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
