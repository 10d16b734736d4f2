"""Which exceptions Dask raises because of workers or the scheduler, and not because of a task's own code.

Names and texts are those of distributed 2024.8.1 to 2026.8.0. A client's event loop imports this module, so it
imports next to nothing.
"""

from __future__ import annotations

import sys

from workerdiag.guard import guarded

#: Classes of distributed: workers were lost, none may run a task, a connection ended, a shuffle failed.
_CLASSES = frozenset(
    """
    CommClosedError DataUnavailable FutureCancelledError FuturesCancelledError KilledWorker NoValidWorkerError
    NoWorkerError P2PConsistencyError P2PIllegalStateError P2POutOfDiskError WorkerStartTimeoutError
    """.split()
)
#: Beginnings or parts of messages whose class says nothing: actor.py; scheduler.py, where it refuses the inputs of
#: a task, and where it cannot read a graph.
_TEXTS = (
    "Unable to contact Actor's worker",
    "Worker holding Actor was lost",
    " worth of input dependencies, but worker ",
    "Error during deserialization of the task graph",
)
#: Names of classes of cancelled futures (client.py); before 2024.12 the plain one of `concurrent.futures`.
_CANCELLED = frozenset({"CancelledError", "FutureCancelledError", "FuturesCancelledError"})
#: Reasons of Dask for cancelling futures that nobody asked it to cancel.
_LOST = frozenset({"scheduler-connection-lost", "scheduler-restart", "lost dependencies"})


def is_of_cluster(exc: object) -> bool:
    """Whether Dask raised it because of its workers or its scheduler, whatever the task was."""
    if not isinstance(exc, Exception):
        return False
    kinds = [each for each in type(exc).__mro__ if each.__module__.partition(".")[0] == "distributed"]
    if any(each.__name__ in _CLASSES for each in kinds):
        return True
    text = ""
    with guarded("reading a message"):  # its class may be of anybody
        text = str(exc)[:2000]
    return any(each in text for each in _TEXTS) or _is_failed_shuffle(exc, text)


def is_surely_of_cluster(exc: object) -> bool:
    """Whether it is a fault of the cluster even where no cause is known; a cancelled future may not be one."""
    return is_of_cluster(exc) and (
        not (isinstance(exc, BaseException) and is_cancelled(exc)) or bool(cancel_reasons(exc) & _LOST)
    )


def is_cancelled(exc: object) -> bool:
    """Whether a future was cancelled, by whomever."""
    return isinstance(exc, Exception) and any(each.__name__ in _CANCELLED for each in type(exc).__mro__)


def cancelled_keys(exc: BaseException) -> set[object]:
    """Return the keys of the futures that were cancelled, as far as the exception names them."""
    groups = getattr(exc, "error_groups", None)
    errors = [each for group in groups for each in group.errors] if groups else [exc]
    return {getattr(each, "key", each.args[0] if each.args else None) for each in errors}


def cancel_reasons(exc: BaseException) -> set[object]:
    """Return what Dask gives as the reasons for cancelled futures, such as ``scheduler-restart``."""
    groups = getattr(exc, "error_groups", None)
    return {each.reason for each in groups} if groups else {getattr(exc, "reason", None)}


def is_missing_on_workers_only(exc: object) -> bool:
    """Whether a task lacked a module, or a name in one, that this process has. Nothing is imported for it."""
    if not isinstance(exc, ImportError) or not isinstance(exc.name, str):
        return False
    if isinstance(exc, ModuleNotFoundError):
        return _can_be_imported(exc.name)
    module = sys.modules.get(exc.name)
    name = getattr(exc, "name_from", None)  # Python 3.12
    return module is not None and isinstance(name, str) and hasattr(module, name)


def _is_failed_shuffle(exc: Exception, text: str) -> bool:
    """Whether a shuffle failed by itself (shuffle/_core.py); one that failed with a task's own error did not."""
    is_shuffle = (text.startswith("P2P ") and " failed during " in text) or (
        text.startswith("shuffle_") and " failed during shuffle " in text
    )
    cause = exc.__cause__
    return is_shuffle and (cause is None or isinstance(cause, OSError) or is_of_cluster(cause))


def _can_be_imported(name: str) -> bool:
    """Whether the module can be found, without importing a package above it."""
    from importlib.machinery import PathFinder
    from importlib.util import find_spec

    if name in sys.modules:
        return True
    top, *rest = name.split(".")
    with guarded("looking for a module"):
        spec, full = find_spec(top), top
        for each in rest:
            if spec is None or spec.submodule_search_locations is None:
                return False
            full = f"{full}.{each}"
            spec = PathFinder.find_spec(full, spec.submodule_search_locations)
        return spec is not None
    return False
