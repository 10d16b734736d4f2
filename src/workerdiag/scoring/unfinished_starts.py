"""
Workers that began to start and never came up, as far as logs show it.
"""

from __future__ import annotations

from collections.abc import Iterator

from workerdiag.model.diagnosis import Match
from workerdiag.model.incident import Incident
from workerdiag.model.rules import REGISTRATIONS

_WAITING, _REGISTERED = "worker.waiting-to-connect", "worker.registered"
_WORKER_UP = (*REGISTRATIONS, _WAITING, _REGISTERED, "worker.start")
_PRELOADING = "process.preloading"
_NANNY_STARTS, _STARTS = "nanny.start", "worker.start"
_WORKER_STARTS = (*REGISTRATIONS, _REGISTERED, "worker.start", _NANNY_STARTS, "nanny.starts-worker")
_SCHEDULER_STARTS, _CLIENT_CAME = "scheduler.start", "scheduler.client-connected"


def unfinished_starts(incident: Incident) -> Iterator[Match]:
    """
    The last mark of each process whose start came to no end.
    """
    yield from _never_registered(incident)
    yield from _never_up(incident)
    yield from _begun_only(incident)
    yield from _ended_while_preloading(incident)


def is_start(mark: Match) -> bool:
    """
    Whether *mark* tells that a process starts, not that it fails.
    """
    return mark.role == "start" or mark.owner == _PRELOADING


def all_died_at_start(incident: Incident) -> bool:
    """
    Whether worker processes died, and nothing tells of any worker that was up.
    """
    return any(_never_up(incident))


def lacks_workers(incident: Incident) -> bool:
    """
    Whether a client came to a scheduler, and nothing tells of any worker.
    """
    owners = {each.owner for each in incident.marks}
    return owners >= {_SCHEDULER_STARTS, _CLIENT_CAME} and owners.isdisjoint(_WORKER_STARTS)


def _never_registered(incident: Incident) -> Iterator[Match]:
    """
    Workers that wait for the scheduler at the end of their log, and were not told to stop.
    """
    last: dict[tuple[str, int | None], Match] = {}
    stopped: dict[str, int] = {}
    for each in incident.marks:
        if each.owner in (_WAITING, _REGISTERED, *REGISTRATIONS):
            last[each.origin, each.identity.pid] = each
        elif each.role == "stop-request":
            stopped[each.origin] = max(each.line, stopped.get(each.origin, 0))
    for each in last.values():
        if each.owner == _WAITING and each.line >= stopped.get(each.origin, 0):
            yield each


def _never_up(incident: Incident) -> Iterator[Match]:
    """
    Ends of worker processes in logs in which nannies start and no worker does: these starts failed.
    """
    if any(each.owner in _WORKER_UP for each in incident.marks):
        return
    started: dict[str, int] = {}
    for each in incident.marks:
        if each.owner == _NANNY_STARTS:
            started.setdefault(each.origin, each.line)
        elif each.role == "death" and each.line > started.get(each.origin, each.line):
            yield each


def _begun_only(incident: Incident) -> Iterator[Match]:
    """
    The last start of each log that nobody asked to stop, where nothing tells of a worker that had registered.

    Older nannies do not say why they close.
    """
    if any(each.owner in (_REGISTERED, *REGISTRATIONS) for each in incident.marks):
        return
    last: dict[str, Match] = {}
    for each in incident.marks:
        if each.owner in (_NANNY_STARTS, _STARTS):
            last[each.origin] = each
        elif each.role == "stop-request":
            last.pop(each.origin, None)
    yield from last.values()


def _ended_while_preloading(incident: Incident) -> Iterator[Match]:
    """
    Code that Dask was told to load first, in logs that tell of no worker or scheduler up after it.
    """
    last: dict[str, Match] = {}
    up = {each.origin for each in incident.marks if each.owner in (*_WORKER_UP, _SCHEDULER_STARTS)}
    for each in incident.marks:
        if each.owner == _PRELOADING and each.origin not in up:
            last[each.origin] = each
        elif each.owner == _NANNY_STARTS:
            last.pop(each.origin, None)
    yield from last.values()
