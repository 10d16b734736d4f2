"""
A function in a process of its own with a memory limit, so that what kills it kills nothing else.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from signal import Signals

from workerdiag.errors import TriageError, error_text

#: The process prints its result behind this: libraries print what they like.
_RESULT = b"\0workerdiag-result\0"
_CHILD = "from workerdiag.triage.isolated_process import serve; serve()"


def run_isolated(
    job: object, function: Callable[..., object], memory_bytes: int, timeout_s: float, *arguments: object
) -> object:
    """
    What ``function(job, *arguments)`` returns in a process of its own.

    Raises:
        TriageError: The process ended without a result: by a signal, for want of memory or in time.
    """
    given = pickle.dumps((memory_bytes, function, job, arguments))
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
    except subprocess.TimeoutExpired:
        raise TriageError(f"reading it in a process of its own took more than {timeout_s:.0f} s") from None
    _, marker, result = ended.stdout.rpartition(_RESULT)
    if ended.returncode == 0 and marker:
        return pickle.loads(result)  # noqa: S301  our own process wrote it
    raise TriageError(f"the process that read it {_end_of(ended)}")


def serve() -> None:
    """
    The other side: call the function that standard input names, print what it returns.
    """
    memory_bytes, function, job, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301  our own process wrote it
    _limit_memory(memory_bytes)
    try:
        result = function(job, *arguments)
    except MemoryError:
        sys.exit("MemoryError")
    sys.stdout.buffer.write(_RESULT + pickle.dumps(result))
    sys.stdout.flush()


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
