"""
Every private part of Dask's packages that sources read, each in one function.

Each function degrades: where a release lacks the part, it returns None or nothing. The functions that end in
``_reader`` return one that runs inside the scheduler: nested, so that it is pickled by value. Probes
(``sources/host/probes``) run without workerdiag and read what they need by themselves. What the recorder and
the watcher touch is in `workerdiag.recorder.internals`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workerdiag.model.dask import Client, Method, Reply, Scheduler, Topic


def topics_reader() -> Method:
    """
    A function that returns a scheduler's events by topic (``Broker._topics`` in broker.py), or None.

    ``Scheduler.get_events`` makes a topic that is not there, and copies all events of one that is.
    """

    def topics(scheduler: Scheduler) -> Mapping[str, Topic] | None:
        found: Mapping[str, Topic] | None = getattr(getattr(scheduler, "_broker", None), "_topics", None)
        return found

    return topics


def log_handler_reader() -> Method:
    """
    A function that returns the handler with the last records of a server's log, or None.

    ``Server._deque_handler`` (node.py); ``get_logs`` formats all of them at once, which holds a scheduler up.
    """

    def log_handler(server: object) -> Any:
        return getattr(server, "_deque_handler", None)

    return log_handler


def scheduler_identity(client: Client) -> Reply:
    """
    What the scheduler said of itself when *client* connected (``Client._scheduler_identity``).
    """
    return getattr(client, "_scheduler_identity", {})


def nannies_here() -> list[Any]:
    """
    The nannies of this process (``Nanny._instances``), those included that have left their cluster.
    """
    return _instances("nanny", "Nanny")


def is_scheduler_here(address: str) -> bool:
    """
    Whether the scheduler at *address* lives in this process (``Scheduler._instances``, ``Server._address``).
    """
    return any(server_address(each) == address for each in _instances("scheduler", "Scheduler"))


def _instances(module: str, name: str) -> list[Any]:
    """
    The servers of one class that live in this process; none if nobody has imported the class.
    """
    kind = getattr(sys.modules.get(f"distributed.{module}"), name, None)
    return list(getattr(kind, "_instances", ()))


def server_address(server: object) -> str | None:
    """
    The address of a server in this process, None before it listens (``Server._address``, core.py).
    """
    return getattr(server, "_address", None)


def is_adaptive(cluster: object) -> bool:
    """
    Whether a cluster object scales by itself (``Cluster._adaptive``, deploy/cluster.py).
    """
    return getattr(cluster, "_adaptive", None) is not None


def created_jobs(cluster: object) -> list[object]:
    """
    All servers that a cluster object has started, also those it has let go of (``SpecCluster._created``).
    """
    return list(getattr(cluster, "_created", ()))


def job_options(cluster: object) -> Mapping[str, object]:
    """
    The options of the jobs of a dask-jobqueue cluster (``JobQueueCluster._job_kwargs``, core.py).
    """
    options = getattr(cluster, "_job_kwargs", None)
    return options if isinstance(options, Mapping) else {}


def aws_region(cluster: object) -> str | None:
    """
    The region of an ECS cluster of dask-cloudprovider (``ECSCluster._region_name``, aws/ecs.py).
    """
    return getattr(cluster, "_region_name", None)
