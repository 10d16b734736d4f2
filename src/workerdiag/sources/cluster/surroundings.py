"""
Versions and settings of a scheduler, and which versions differ on its workers and clients.

They come with answers that are asked for anyway. Of settings only those of `SETTINGS` are taken: others
can be secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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


def reader() -> Callable[[Any], Mapping[str, Any]]:
    """
    The function that looks inside a scheduler: nested, so that it is pickled by value (`tasks._reader`).

    It returns ``settings``, ``worker_versions`` and ``client_versions``, the latter without clients that are
    there for a diagnosis only.
    """
    names = SETTINGS

    def workerdiag_reads_surroundings(dask_scheduler: Any) -> dict[str, Any]:
        from itertools import islice

        from dask import config

        def kinds(servers: Any) -> list[tuple[int, dict[str, Any]]]:
            counts: dict[Any, int] = {}
            for each in islice(servers, 1000):
                kind = tuple(((getattr(each, "versions", None) or {}).get("packages") or {}).items())
                counts[kind] = counts.get(kind, 0) + 1
            return [(count, dict(kind)) for kind, count in islice(counts.items(), 10)]

        def setting(name: str) -> Any:
            attribute = name.rpartition(".")[2].replace("-", "_")
            value = getattr(dask_scheduler, attribute, None) if ".scheduler." in name else None
            value = config.get(name, None) if value is None else value
            return value if isinstance(value, int | float | None) else str(value)[:100]

        users = (each for name, each in dask_scheduler.clients.items() if not name.startswith("workerdiag"))
        return {
            "settings": {name: setting(name) for name in names},
            "worker_versions": kinds(dask_scheduler.workers.values()),
            "client_versions": kinds(users),
        }

    return workerdiag_reads_surroundings


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


def of_differing(reply: Mapping[str, Any], inside: Mapping[str, Any]) -> Iterator[Event]:
    """
    One event if versions differ between scheduler, workers and clients, with who has which.

    Dask compares them when a worker or a client connects, and warns there (``error_message`` in versions.py).

    Args:
        reply: As for `of_versions`.
        inside: Has ``worker_versions`` and ``client_versions``: how many have which packages.
    """
    told = [("scheduler", 1, _texts(reply.get("packages")))]
    for who in ("client", "worker"):
        told += [(who, count, _texts(packages)) for count, packages in _kinds(inside.get(f"{who}_versions"))]
    told = [each for each in told if each[2]]
    names = sorted({name for _, _, packages in told for name in packages})
    differing = {name: said for name in names if (said := _differing(name, told))}
    if differing:
        fields = {"of": "differing", "packages": ", ".join(differing), **differing}
        yield Event(topic="versions", fields=fields)


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
