"""A worker of a real cluster, killed for real and explained: ``workerdiag demo``."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workerdiag.api.diagnosis import Diagnosis

#: Enough for a worker with nothing to do (130 MiB), little enough to be full within seconds.
MEMORY_LIMIT = "400 MiB"
#: The growing task stops here, to spare the machine; it grows in steps of `_STEP_BYTES`.
_MAX_BYTES = 2 * 2**30
_STEP_BYTES = 16 * 2**20
#: How long to wait for Dask to report the death.
_WAIT_S = 40
#: Dask's message is cut to this length.
_MAX_CHARACTERS = 150


def grow() -> int:
    """Hold more and more memory, until the process is stopped."""
    held: list[bytes] = []
    while len(held) * _STEP_BYTES < _MAX_BYTES:
        held.append(b"x" * _STEP_BYTES)
        time.sleep(0.05)
    return len(held)


def segfault() -> None:
    """Read the memory at address zero."""
    ctypes.string_at(0)


def leave() -> None:
    """End the process at once, with status 3."""
    os._exit(3)


def sigkill() -> None:
    """Let the operating system kill the process."""
    os.kill(os.getpid(), signal.SIGKILL)


#: Name of each death, its description, and the task that causes it.
DEATHS: Mapping[str, tuple[str, Callable[[], object]]] = {
    "oom": ("uses more and more memory", grow),
    "segfault": ("reads memory at address zero", segfault),
    "exit": ("calls os._exit(3)", leave),
    "sigkill": ("kills its own process with SIGKILL", sigkill),
}


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Silence what Dask and its processes write to the terminal: logs, warnings, and tracebacks after ^C."""
    stderr = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)  # processes that are started inherit it
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


def run(
    death: str = "oom", *, say: Callable[[str], object] = print, show: Callable[[Diagnosis], object] = print
) -> int:
    """Start a cluster, let a worker die one of `DEATHS`, and say why it died; returns the exit status.

    *say* gets what a person is to read, *show* the diagnosis before the cluster is closed.
    """
    doing, task = DEATHS[death]
    say(f"Two Dask workers, {MEMORY_LIMIT} each, and one task that {doing} ...")

    import dask
    from distributed import Client, LocalCluster

    from workerdiag.api.explain import explain

    # The first death is reported: by default Dask tries a task on three more workers.
    settings = {"distributed.scheduler.allowed-failures": 0, "distributed.worker.memory.terminate": 0.95}
    with (
        _quiet_stderr(),
        warnings.catch_warnings(action="ignore"),  # such as port 8787 being in use
        dask.config.set(settings),
        LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            memory_limit=MEMORY_LIMIT,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,  # quiets the terminal; what nannies keep stays at INFO
        ) as cluster,
        Client(cluster) as client,  # type: ignore[no-untyped-call]
    ):
        try:
            client.submit(task, pure=False).result(timeout=_WAIT_S)
        except Exception as problem:  # noqa: BLE001  this is the user's except block
            error_text = textwrap.shorten(
                f"{type(problem).__name__}: {problem}", _MAX_CHARACTERS, placeholder=" ..."
            )
            say(f"Dask says {error_text}\n")
            show(explain(problem, client))
        else:
            say("The worker survived unexpectedly: nothing to explain.")
    return 0
