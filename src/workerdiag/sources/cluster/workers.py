"""Reads a scheduler's workers (all up to 500, else the relevant ones), its versions and some settings.

Versions and settings come from replies that are requested anyway. Only the settings in `SETTINGS` are read:
others can be secrets.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping

from workerdiag.guard import guarded
from workerdiag.model.dask import Client, Reply, is_disallowed
from workerdiag.model.evidence import Event
from workerdiag.model.identity import host_of
from workerdiag.sources.cluster.scheduler_functions import MAX_DESCRIBED, by_value, workerdiag_looks_at_workers
from workerdiag.sources.internals import is_adaptive, is_correcting_workers
from workerdiag.units import parse_bytes


async def fetch_workers(client: Client, *, near: Collection[str | None] = ()) -> Reply:
    """Return ``workers`` by address, at most `MAX_DESCRIBED`, and ``worker_count``, the number of all.

    The workers at the addresses in *near* come first, with others on their hosts.
    """
    reply = await fetch_identity(client, most_workers=MAX_DESCRIBED)
    workers: Reply = dict(reply.get("workers") or {})
    count = int(reply.get("n_workers", len(workers)))
    if count > MAX_DESCRIBED and has_same_python(await fetch_versions(client)):
        addresses = [each for each in near if each]
        hosts = [host for each in addresses if (host := host_of(each))]
        try:
            return dict(await client.run_on_scheduler(by_value(workerdiag_looks_at_workers), addresses, hosts))
        except Exception as problem:
            if not is_disallowed(problem):
                raise
    return {"workers": workers, "worker_count": count}


async def fetch_identity(client: Client, *, most_workers: int) -> Reply:
    """Return the scheduler's ``identity`` with its workers (0.7 kB each)."""
    try:
        reply = await client.scheduler.identity(n_workers=most_workers)
    except TypeError:  # up to 2025.3.1 it takes no argument and returns all workers
        reply = await client.scheduler.identity()
    return dict(reply)


#: Settings that decide when a scheduler gives up a worker, a task or itself (distributed.yaml, 2024.8.1 to
#: 2026.8.0). The memory thresholds are those of the scheduler's process; workers may have others.
SETTINGS = (
    "distributed.scheduler.allowed-failures",
    "distributed.scheduler.worker-ttl",
    "distributed.scheduler.idle-timeout",
    "distributed.scheduler.no-workers-timeout",
    "distributed.scheduler.worker-saturation",
    "distributed.worker.memory.target",
    "distributed.worker.memory.spill",
    "distributed.worker.memory.pause",
    "distributed.worker.memory.terminate",
)
#: Packages that a scheduler may lack, or have in another version, without harm (``versions.py``).
_NOT_OF_SCHEDULERS = {"numpy", "pandas"}
_MAX_CHARS = 100


def version_events(reply: Reply, address: object) -> Iterator[Event]:
    """Yield the versions in a reply of ``Scheduler.versions``."""
    packages = _package_versions(reply.get("packages"))
    if packages:
        yield Event(topic="versions", fields={"of": "scheduler", "address": str(address), **packages})


def setting_events(snapshot: Reply, address: object) -> Iterator[Event]:
    """Yield the settings in a snapshot; times are in seconds where the scheduler keeps them so."""
    settings = snapshot.get("settings")
    known = {
        name: each
        for name, each in (settings.items() if isinstance(settings, Mapping) else ())
        if name in SETTINGS and isinstance(each, str | int | float | bool)
    }
    if known:
        yield Event(topic="configuration", fields={"of": "scheduler", "address": str(address), **known})


def cluster_object_events(client: Client) -> Iterator[Event]:
    """Yield one event about the client's cluster object, if this process has one."""
    from distributed import LocalCluster, system

    cluster = getattr(client, "cluster", None)
    if cluster is None:
        return
    wanted = getattr(cluster, "worker_spec", None)
    fields: dict[str, str | int | bool | None] = {
        "type": type(cluster).__name__,
        "adaptive": is_adaptive(cluster),
        "workers_wanted": _workers_in(wanted) if isinstance(wanted, dict) else None,
        "workers_given_up": _given_up(cluster),
        "machine_bytes": int(system.MEMORY_LIMIT) if isinstance(cluster, LocalCluster) else None,
    }
    with guarded("reading the specification of workers"):
        fields |= _worker_options(next(iter(wanted.values()))["options"]) if wanted else {}
    yield Event(topic="cluster", fields=fields)


def _given_up(cluster: object) -> int | None:
    """How many workers a cluster object wants and has none for; None if it starts some, or is of another kind.

    ``SpecCluster`` (deploy/spec.py) ends a worker for good that is not there ``lost-worker-timeout`` after a loss,
    also one that happens to be starting again. It starts others when it is scaled.
    """
    wanted, has = getattr(cluster, "worker_spec", None), getattr(cluster, "workers", None)
    if not (isinstance(wanted, dict) and isinstance(has, dict)) or is_adaptive(cluster):
        return None
    return None if is_correcting_workers(cluster) else len(wanted.keys() - has.keys())


def _worker_options(options: Mapping[str, object]) -> dict[str, int | None]:
    limit, threads = options.get("memory_limit"), options.get("nthreads")
    limit = parse_bytes(limit) if isinstance(limit, str) else limit
    return {
        "worker_limit_bytes": limit if type(limit) is int else None,
        "worker_threads": threads if type(threads) is int else None,
    }


def with_worker_versions(snapshot: Reply, of_workers: Reply | None) -> Reply:
    """Return the snapshot; without one, the versions that workers reported, and our own as the client's."""
    if snapshot:
        return snapshot
    from distributed.versions import get_versions

    replies = (of_workers or {}).values()
    workers = [(1, each.get("packages")) for each in replies if isinstance(each, Mapping)]
    return {"worker_versions": workers, "client_versions": [(1, get_versions()["packages"])]}


def workers_wanted(client: Client) -> int | None:
    """Return how many workers the client's cluster object wants; None without one, or if it scales by itself."""
    cluster = getattr(client, "cluster", None)
    wanted = getattr(cluster, "worker_spec", None)
    return _workers_in(wanted) if isinstance(wanted, dict) and not is_adaptive(cluster) else None


def _workers_in(specification: Mapping[object, Reply]) -> int:
    """The workers that a ``SpecCluster`` wants: an entry may be a job of several (``group``, deploy/spec.py)."""
    return sum(len(each["group"]) if "group" in each else 1 for each in specification.values())


def version_conflict_events(reply: Reply, snapshot: Reply, *, in_trouble: bool = False) -> Iterator[Event]:
    """Yield one event if scheduler, workers and clients have different versions, with who has which.

    Dask compares them when a worker or a client connects, and warns there (``error_message`` in versions.py).
    Many clusters run well with such differences: *in_trouble* says whether a failure was noticed.
    """
    packages_by_role = [("scheduler", 1, _package_versions(reply.get("packages")))]
    for who in ("client", "worker"):
        counts = snapshot.get(f"{who}_versions")
        packages_by_role += [
            (who, each[0], _package_versions(each[1]))
            for each in (counts if isinstance(counts, list | tuple) else ())
            if isinstance(each, list | tuple) and len(each) == 2 and isinstance(each[0], int)
        ]
    packages_by_role = [each for each in packages_by_role if each[2]]
    names = sorted({name for _, _, packages in packages_by_role for name in packages})
    described = {name: _describe_versions(name, packages_by_role) for name in names}
    differing = {name: text for name, text in described.items() if text}
    if differing:
        apart = _months_apart([each[2].get("distributed", "") for each in packages_by_role])
        fields: dict[str, str | int] = {"of": "differing", "packages": ", ".join(differing), **differing}
        yield Event(topic="versions", fields=fields | {"in_trouble": in_trouble, "months_apart": apart})


def _months_apart(releases: Iterable[str]) -> int:
    """Return the months between the oldest and the newest of distributed's *releases* (``2026.8.0``)."""
    found = [re.match(r"(20\d\d)\.(\d{1,2})\.", each) for each in releases]
    months = [12 * int(each[1]) + int(each[2]) for each in found if each]
    return max(months) - min(months) if months else 0


def _describe_versions(name: str, packages_by_role: Iterable[tuple[str, int, Mapping[str, str]]]) -> str:
    has: dict[str, dict[str, int]] = {}
    for who, count, packages in packages_by_role:
        if who != "scheduler" or name not in _NOT_OF_SCHEDULERS:
            by_whom = has.setdefault(packages.get(name, "none"), {})
            by_whom[who] = by_whom.get(who, 0) + count
    if len(has) < 2:
        return ""
    counted = ((version, who, count) for version, by in has.items() for who, count in by.items())
    return ", ".join(f"{who if count == 1 else f'{count} {who}s'} {version}" for version, who, count in counted)


def _package_versions(packages: object) -> dict[str, str]:
    pairs = list(packages.items())[:40] if isinstance(packages, Mapping) else []
    return {str(name)[:_MAX_CHARS]: str(each)[:_MAX_CHARS] for name, each in pairs if each is not None}


async def fetch_versions(client: Client) -> Reply:
    """Return the scheduler's versions of Python, system and packages."""
    reply: Reply = await client.scheduler.versions()
    return {**reply, "python": str(reply["host"]["python"])}


def has_same_python(reply: Reply) -> bool:
    """Whether a scheduler with these versions runs our release of Python; byte code of another can crash it."""
    version = str(reply["python"]).split(".")
    return version[:2] == [str(part) for part in sys.version_info[:2]]
