"""Every private part of Dask's packages that sources read, each in one function.

A function returns None or nothing if a release lacks the part. Some of them run inside the scheduler
(`workerdiag.sources.cluster.scheduler_functions`). Probes (``sources/host/probes``) run without workerdiag and
read private parts themselves.
`workerdiag.recorder.internals` has those that the recorder and the watcher use.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

    from workerdiag.model.dask import Client, Method, Reply, Scheduler, Topic


def topics_reader() -> Method:
    """Return a function, pickled by value, for a scheduler's events by topic (``Broker._topics``), or None.

    ``Scheduler.get_events`` creates a missing topic, and copies all events of an existing one.
    """

    def topics(scheduler: Scheduler) -> Mapping[str, Topic] | None:
        found: Mapping[str, Topic] | None = getattr(getattr(scheduler, "_broker", None), "_topics", None)
        return found

    return topics


def log_handler(server: object) -> Any:
    """Return the handler with the last records of a server's log (``Server._deque_handler``, node.py), or None.

    ``get_logs`` formats all records at once and blocks the server.
    """
    return getattr(server, "_deque_handler", None)


def waiters_at_queue(queue: object) -> int:
    """Return how many wait for a queue (``asyncio.Queue._getters`` and ``_putters``)."""
    return sum(len(getattr(queue, name, ())) for name in ("_getters", "_putters"))


def waiters_at_events(extension: object) -> dict[object, int]:
    """Return how many wait for each event (``EventExtension._waiter_count``, event.py)."""
    return dict(getattr(extension, "_waiter_count", {}))


def parts_of(value: Any) -> Iterable[object]:
    """Return at most 64 values that a task (dask/_task_spec.py), its function, or a collection in it holds."""
    if isinstance(value, list | tuple | set | dict):
        return islice(value.values() if isinstance(value, dict) else value, 64)
    if type(value).__module__ == "dask._task_spec":
        return [getattr(value, name, None) for name in ("value", "args", "kwargs", "func")]
    if type(value).__name__ == "partial":
        return [value.func, value.args, value.keywords]
    if type(value).__name__ != "function":
        return ()
    cells = (getattr(cell, "cell_contents", None) for cell in (value.__closure__ or ())[:64])
    return [*cells, *(value.__globals__.get(name) for name in _names_taken_along(value))]


def _names_taken_along(function: Any) -> Collection[str]:
    """Return the global names that travel with a function: with one of a script, or one that cannot be imported."""
    from dis import get_instructions

    if function.__module__ != "__main__" and "<" not in function.__qualname__:
        return ()
    found, codes = set[str](), [function.__code__]
    for code in codes:
        found |= {str(each.argval) for each in get_instructions(code) if each.opname == "LOAD_GLOBAL"}
        codes += [each for each in code.co_consts if hasattr(each, "co_consts")][: max(0, 64 - len(codes))]
    return found


def scheduler_identity(client: Client) -> Reply:
    """Return the identity that the scheduler sent when *client* connected (``Client._scheduler_identity``)."""
    return getattr(client, "_scheduler_identity", {})


def nannies_here() -> list[Any]:
    """Return this process's nannies (``Nanny._instances``), including those that have left their cluster."""
    return _instances("nanny", "Nanny")


def is_scheduler_here(address: str) -> bool:
    """Whether the scheduler at *address* is in this process (``Scheduler._instances``, ``Server._address``)."""
    return any(server_address(each) == address for each in _instances("scheduler", "Scheduler"))


def _instances(module: str, name: str) -> list[Any]:
    kind = getattr(sys.modules.get(f"distributed.{module}"), name, None)
    return list(getattr(kind, "_instances", ()))


def server_address(server: object) -> str | None:
    """Return the address of a server in this process; None before it listens (``Server._address``, core.py)."""
    return getattr(server, "_address", None)


def is_adaptive(cluster: object) -> bool:
    """Whether a cluster object scales by itself (``Cluster._adaptive``, deploy/cluster.py)."""
    return getattr(cluster, "_adaptive", None) is not None


def is_correcting_workers(cluster: object) -> bool:
    """Whether a cluster object starts or ends workers at the moment (``SpecCluster._lock``)."""
    lock = getattr(cluster, "_lock", None)
    return lock is None or bool(lock.locked())


def created_jobs(cluster: object) -> list[object]:
    """Return all servers that a cluster object has started, including dropped ones (``SpecCluster._created``)."""
    return list(getattr(cluster, "_created", ()))


def job_options(cluster: object) -> Mapping[str, object]:
    """Return the job options of a dask-jobqueue cluster (``JobQueueCluster._job_kwargs``, core.py)."""
    options = getattr(cluster, "_job_kwargs", None)
    return options if isinstance(options, Mapping) else {}


def aws_region(cluster: object) -> str | None:
    """Return the region of a dask-cloudprovider ECS cluster (``ECSCluster._region_name``, aws/ecs.py)."""
    return getattr(cluster, "_region_name", None)


def frames_of_threads() -> list[FrameType]:
    """Return the innermost frame of each thread of this process (``sys._current_frames``, documented)."""
    return list(sys._current_frames().values())  # noqa: SLF001  it has no other name


def expression_part(node: object, name: str) -> Any:
    """Return ``_meta``, ``_name`` or ``_parameters`` of an expression (dask/_expr.py), or None."""
    return getattr(node, name, None)


def embedded_frame(node: Any) -> Any:
    """Return the pandas frame that an expression ``FromPandas`` reads (``_BackendData._data``, _util.py)."""
    return getattr(node.operand("frame"), "_data", None)


def array_variables(value: object) -> Mapping[object, Any]:
    """Return the variables of a Dataset (``_variables``) or DataArray (``_variable``) of xarray."""
    found = getattr(value, "_variables", None)
    return found if isinstance(found, Mapping) else {"": getattr(value, "_variable", None)}


def variable_data(variable: object) -> object:
    """Return the array of a variable of xarray without loading it (``Variable._data``)."""
    return getattr(variable, "_data", None)
