"""
Versions and settings of a scheduler, and which versions differ on its workers and clients.

They come with answers that are asked for anyway. Of settings only those of `SETTINGS` are taken: others
can be secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from workerdiag.model.evidence import Event

#: What decides in a scheduler whether a worker, a task or the scheduler itself is given up (distributed.yaml,
#: 2024.8.1 to 2026.8.0). The thresholds of memory are those of its own process; workers may have others.
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
#: Packages that a scheduler may lack, or have otherwise, without harm (``versions.py``).
_NOT_OF_SCHEDULERS = {"numpy", "pandas"}
_MOST_NAMES = 40
_MOST_CHARS = 100


def of_versions(reply: Mapping[str, Any], address: object) -> Iterator[Event]:
    """
    The versions of a scheduler, as ``Scheduler.versions`` tells them.
    """
    packages = _texts(reply.get("packages"))
    if packages:
        yield Event(topic="versions", fields={"of": "scheduler", "address": str(address), **packages})


def of_settings(inside: Mapping[str, Any], address: object) -> Iterator[Event]:
    """
    The settings that a look inside the scheduler found; times are in seconds where it uses them as such.
    """
    said = inside.get("settings")
    known = {
        name: each
        for name, each in (said.items() if isinstance(said, Mapping) else ())
        if name in SETTINGS and isinstance(each, str | int | float | bool)
    }
    if known:
        yield Event(topic="configuration", fields={"of": "scheduler", "address": str(address), **known})


def of_cluster(client: Any) -> Iterator[Event]:
    """
    What the cluster object of this process says of itself, where there is one.
    """
    cluster = getattr(client, "cluster", None)
    if cluster is None:
        return
    wanted = getattr(cluster, "worker_spec", None)
    fields: dict[str, str | int | bool | None] = {
        "type": type(cluster).__name__,
        "adaptive": getattr(cluster, "_adaptive", None) is not None,
        "workers_wanted": len(wanted) if isinstance(wanted, dict) else None,
    }
    yield Event(topic="cluster", fields=fields)


def with_versions(inside: Mapping[str, Any], of_workers: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """
    What a look *inside* brought; without one, the versions that workers told, and our own as the client's.
    """
    if inside:
        return inside
    from distributed.versions import get_versions

    said = (of_workers or {}).values()
    workers = [(1, each.get("packages")) for each in said if isinstance(each, Mapping)]
    return {"worker_versions": workers, "client_versions": [(1, get_versions()["packages"])]}


def of_differing(
    reply: Mapping[str, Any], inside: Mapping[str, Any], *, in_trouble: bool = False
) -> Iterator[Event]:
    """
    One event if versions differ between scheduler, workers and clients, with who has which.

    Dask compares them when a worker or a client connects, and warns there (``error_message`` in versions.py).

    Args:
        reply: As for `of_versions`.
        inside: Has ``worker_versions`` and ``client_versions``: how many have which packages.
        in_trouble: Whether something is wrong in this cluster: many live well with such differences.
    """
    told = [("scheduler", 1, _texts(reply.get("packages")))]
    for who in ("client", "worker"):
        told += [(who, count, _texts(packages)) for count, packages in _kinds(inside.get(f"{who}_versions"))]
    told = [each for each in told if each[2]]
    names = sorted({name for _, _, packages in told for name in packages})
    differing = {name: said for name in names if (said := _differing(name, told))}
    if differing:
        apart = _months_apart([each[2].get("distributed", "") for each in told])
        fields: dict[str, str | int] = {"of": "differing", "packages": ", ".join(differing), **differing}
        yield Event(topic="versions", fields=fields | {"in_trouble": in_trouble, "months_apart": apart})


def _months_apart(releases: Iterable[str]) -> int:
    """
    How many months lie between the oldest and the newest of distributed's releases (``2026.8.0``).
    """
    found = [re.match(r"(20\d\d)\.(\d{1,2})\.", each) for each in releases]
    months = [12 * int(each[1]) + int(each[2]) for each in found if each]
    return max(months) - min(months) if months else 0


def _differing(name: str, told: Iterable[tuple[str, int, Mapping[str, str]]]) -> str:
    """
    Who has which version of a package; empty if all have the same.
    """
    has: dict[str, dict[str, int]] = {}
    for who, count, packages in told:
        if who != "scheduler" or name not in _NOT_OF_SCHEDULERS:
            by_whom = has.setdefault(packages.get(name, "none"), {})
            by_whom[who] = by_whom.get(who, 0) + count
    if len(has) < 2:
        return ""
    return ", ".join(
        f"{_counted(who, count)} {version}" for version, by in has.items() for who, count in by.items()
    )


def _counted(who: str, count: int) -> str:
    return who if count == 1 else f"{count} {who}s"


def _kinds(said: object) -> Iterator[tuple[int, object]]:
    for each in said if isinstance(said, list | tuple) else ():
        if isinstance(each, list | tuple) and len(each) == 2 and isinstance(each[0], int):
            yield each[0], each[1]


def _texts(packages: object) -> dict[str, str]:
    """
    Name to version of what is installed.
    """
    pairs = list(packages.items())[:_MOST_NAMES] if isinstance(packages, Mapping) else []
    return {str(name)[:_MOST_CHARS]: str(each)[:_MOST_CHARS] for name, each in pairs if each is not None}
