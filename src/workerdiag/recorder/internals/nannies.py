"""Private parts of `distributed.Nanny`: the exit of its process, and requests to stop it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from workerdiag.recorder.internals import Undo

if TYPE_CHECKING:
    from workerdiag.model.dask import Nanny


def watch_exits(nanny: Nanny, on_exit: Callable[[int], None]) -> Undo | None:
    """Have *on_exit* called with the exit code of each worker process; returns what ends that, or None.

    ``Nanny._on_worker_exit_sync`` (nanny.py) gets the code and drops it. A `WorkerProcess` keeps
    the method that it was made with as ``on_exit``. A negative code is a signal; 255 is also what
    is reported when the code could not be read (process.py).
    """
    original = getattr(nanny, "_on_worker_exit_sync", None)
    if not callable(original):
        return None
    active = True

    def hooked(exitcode: int) -> object:
        if active:
            on_exit(exitcode)
        return original(exitcode)

    def undo() -> None:
        nonlocal active
        active = False
        if vars(nanny).get("_on_worker_exit_sync") is hooked:
            del nanny._on_worker_exit_sync  # noqa: SLF001  what this module is for
        if getattr(nanny.process, "on_exit", None) is hooked:
            nanny.process.on_exit = original

    nanny._on_worker_exit_sync = hooked  # noqa: SLF001
    if getattr(nanny.process, "on_exit", None) is not None:
        nanny.process.on_exit = hooked
    return undo


def watch_stop_requests(nanny: Nanny, on_request: Callable[[], None]) -> Undo | None:
    """Call *on_request* whenever the nanny asks its worker process to close. Returns an undo function, or None.

    All such orders go through ``WorkerProcess.kill`` (nanny.py), of the one object that a nanny keeps
    for all its worker processes. None while it has not got it yet.
    """
    process = nanny.process
    original = getattr(process, "kill", None)
    if not callable(original):
        return None
    active = True

    def hooked(*args: object, **kwargs: object) -> object:
        if active:
            on_request()
        return original(*args, **kwargs)

    def undo() -> None:
        nonlocal active
        active = False
        if vars(process).get("kill") is hooked:
            del process.kill

    process.kill = hooked
    return undo


def terminated_pid(nanny: Nanny) -> int | None:
    """The process that the nanny ended last for taking too much memory (worker_memory.py); None if none."""
    pid = getattr(getattr(nanny, "memory_manager", None), "_last_terminated_pid", None)
    return pid if isinstance(pid, int) and pid > 0 else None


def terminate_fraction(nanny: Nanny) -> float | None:
    """The share of the limit at which the nanny ends its worker; None where it does not."""
    fraction = getattr(getattr(nanny, "memory_manager", None), "memory_terminate_fraction", None)
    return float(fraction) if fraction else None
